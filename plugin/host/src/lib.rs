//! The loaders.
