//! What holds a claim while a command runs.
//!
//! Two processes look after the command. The wrapper, which the user started,
//! keeps the claim alive ([`heart`]). The watchdog ([`watchdog`]), in a session
//! of its own, is the command's parent and the one that all its descendants
//! fall to; it is told until when the claim lives ([`lease`]) and ends them all
//! ([`processes`]) before then, whatever has become of the wrapper. [`guard`] is
//! the wrapper's side of the socket between the two ([`message`]).

pub mod guard;
pub mod heart;
pub mod lease;
pub mod lock;
pub mod message;
mod processes;
pub mod watchdog;
