//! The plugin's file, checked before anything of it runs: loading a shared
//! object executes its constructors, so a wrong one must not get that far.

use std::path::Path;

use git_claim_api::abi::GCLAIM_ENTRY;
use object::Endianness;
use object::read::ReadCache;
use object::read::elf::{FileHeader, Sym as _};

use crate::trusted::{TrustedFile, Untrusted};

#[cfg(target_pointer_width = "64")]
type NativeHeader = object::elf::FileHeader64<Endianness>;
#[cfg(target_pointer_width = "32")]
type NativeHeader = object::elf::FileHeader32<Endianness>;

/// Why a file is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum BadPluginFile {
    #[error("plugin {0}")]
    Untrusted(#[from] Untrusted),
    #[error("plugin {path}: not a shared object of this machine: {reason}")]
    NotElf { path: String, reason: object::Error },
    #[error("plugin {0}: it does not define {GCLAIM_ENTRY}, so it is no plugin of git-claim")]
    NoEntry(String),
}

/// A file that may be loaded as the plugin.
#[derive(Debug)]
pub struct PluginFile(TrustedFile);

impl PluginFile {
    /// Opens and checks `path`.
    ///
    /// # Errors
    /// Others may have written it, or it is no plugin.
    pub fn open(path: &Path) -> Result<PluginFile, BadPluginFile> {
        let file = TrustedFile::open(path)?;
        let shown = || file.path().display().to_string();
        match defines_entry(&file) {
            Ok(true) => Ok(PluginFile(file)),
            Ok(false) => Err(BadPluginFile::NoEntry(shown())),
            Err(reason) => Err(BadPluginFile::NotElf {
                path: shown(),
                reason,
            }),
        }
    }

    /// The checked file.
    pub fn file(&self) -> &TrustedFile {
        &self.0
    }
}

/// Whether the dynamic symbols of `file` define the plugin's entry. Reads the
/// few parts of the file that it needs.
fn defines_entry(file: &TrustedFile) -> Result<bool, object::Error> {
    let cache = ReadCache::new(file.file());
    let header = NativeHeader::parse(&cache)?;
    let endian = header.endian()?;
    let symbols =
        header
            .sections(endian, &cache)?
            .symbols(endian, &cache, object::elf::SHT_DYNSYM)?;
    for symbol in symbols.iter() {
        if !symbol.is_undefined(endian)
            && symbol.name(endian, symbols.strings())? == GCLAIM_ENTRY.as_bytes()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_plugin_is_refused_before_it_is_loaded() {
        let folder = TempDir::new().unwrap();
        let text = folder.child("text.so");
        text.write_str("not a shared object").unwrap();
        let refused = PluginFile::open(text.path()).unwrap_err();
        assert!(matches!(refused, BadPluginFile::NotElf { .. }), "{refused}");

        // The test program itself: an ELF file without the entry.
        let program = folder.child("program");
        std::fs::copy(std::env::current_exe().unwrap(), program.path()).unwrap();
        let refused = PluginFile::open(program.path()).unwrap_err();
        assert!(matches!(refused, BadPluginFile::NoEntry(_)), "{refused}");
    }
}
