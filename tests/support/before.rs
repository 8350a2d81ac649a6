//! What is there before a call that fails, and must be there after it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::bound::tree;
use super::client::Client;

/// It.
pub struct Before {
    home: BTreeMap<PathBuf, Vec<u8>>,
    client: Client,
}

impl Before {
    pub fn of(client: &Client) -> Before {
        Before {
            home: Before::files(client),
            client: client.clone(),
        }
    }

    /// Everything of the person's but sockets and what the test itself keeps.
    fn files(client: &Client) -> BTreeMap<PathBuf, Vec<u8>> {
        let home = client.person().home();
        let mut files = tree(home);
        files.retain(|path, _| {
            let below = path.strip_prefix(home).unwrap();
            !below.starts_with("run") && !below.starts_with("test") && !below.starts_with(".cache")
        });
        files
    }

    pub fn is_as_it_was(&self) {
        let now = Before::files(&self.client);
        let only_in = |these: &BTreeMap<PathBuf, Vec<u8>>, those: &BTreeMap<PathBuf, Vec<u8>>| {
            let paths = these.keys().filter(|path| !those.contains_key(*path));
            paths.cloned().collect::<Vec<_>>()
        };
        assert_eq!(only_in(&self.home, &now), Vec::<PathBuf>::new(), "are gone");
        assert_eq!(only_in(&now, &self.home), Vec::<PathBuf>::new(), "are new");
        for (path, content) in &self.home {
            assert!(now[path] == *content, "{} has changed", path.display());
        }
    }
}
