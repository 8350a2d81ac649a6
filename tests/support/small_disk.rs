//! A file system of the test's own, where one may mount.

use std::fs;
use std::path::Path;
use std::process::Command;

use assert_fs::TempDir;

/// A file system that is full, once it can be had.
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// 256 KiB; `None` where one may not mount.
    pub fn mount() -> Option<SmallDisk> {
        let folder = TempDir::new().unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs"])
            .arg(folder.path())
            .output();
        let mounted = status.is_ok_and(|output| output.status.success());
        mounted.then_some(SmallDisk { folder })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Mounts it again, `ro` or `rw`.
    pub fn remount(&self, how: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(self.folder())
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Leaves `bytes` free.
    pub fn fill_but(&self, bytes: usize) {
        let filler = self.folder.path().join("filler");
        let mut size = 256 * 1024;
        while fs::write(&filler, vec![0; size]).is_err() {
            fs::remove_file(&filler).unwrap();
            size -= 4096;
        }
        fs::write(&filler, vec![0; size.saturating_sub(bytes)]).unwrap();
    }

    pub fn free(&self) {
        fs::remove_file(self.folder.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}
