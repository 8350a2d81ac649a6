//! The tokens of this worktree's claims, kept so that a call that arrives late
//! cannot touch the next tenure: `claims/<remote>/<issue>.token` in the
//! worktree's git directory.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use git_claim_api::ids::{IssueId, Token};
use git_claim_api::reply::{ClaimReply, Status};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::answer::Reply;

/// The tokens of one remote's claims.
#[derive(Debug)]
pub struct Tokens {
    folder: PathBuf,
}

const EXTENSION: &str = "token";

impl Tokens {
    pub fn of(git_dir: &Path, remote: &str) -> Tokens {
        Tokens {
            folder: git_dir.join("claims").join(file_name(remote)),
        }
    }

    /// Where they lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The token of the claim that `issue` stands for, if exactly one is kept.
    pub fn find(&self, issue: &IssueId) -> Option<Token> {
        if let Some(token) = read(&self.path(issue)) {
            return Some(token);
        }
        let mut found = self.ids().filter(|id| issue.stands_for(id.as_str()));
        match (found.next(), found.next()) {
            (Some(only), None) => read(&self.path(&only)),
            _ => None,
        }
    }

    /// The issue whose token is kept, if there is exactly one.
    pub fn only_one(&self) -> Option<IssueId> {
        let mut ids = self.ids();
        ids.next().filter(|_| ids.next().is_none())
    }

    /// Keeps the token of a claim that the reply says is held now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, reply: &Reply) -> Result<()> {
        let Some((issue, claim)) = about(reply, &[Status::Acquired, Status::Renewed]) else {
            return Ok(());
        };
        let Ok(token) = Token::new(claim.claim.token) else {
            return Ok(());
        };
        self.put(&issue, token.get())
    }

    /// Forgets the token of a claim that the reply says is released.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget(&self, reply: &Reply) -> Result<()> {
        let Some((issue, _)) = about(reply, &[Status::Released]) else {
            return Ok(());
        };
        let path = self.path(&issue);
        match fs::remove_file(&path) {
            Err(error) if !is_absence(error.kind()) => {
                Err(error).with_context(|| format!("{} cannot be removed", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Keeps a token of which a record speaks.
    ///
    /// # Errors
    /// It is none, or cannot be written.
    pub fn put(&self, issue: &IssueId, token: u64) -> Result<()> {
        let path = self.path(issue);
        self.write(&path, Token::new(token)?)
            .with_context(|| format!("the claim's token cannot be kept in {}", path.display()))
    }

    /// The file of an issue's token.
    pub fn path(&self, issue: &IssueId) -> PathBuf {
        self.folder.join(format!("{issue}.{EXTENSION}"))
    }

    fn ids(&self) -> impl Iterator<Item = IssueId> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name();
            let id = name.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
            id.parse().ok()
        })
    }

    fn write(&self, path: &Path, token: Token) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let temporary = path.with_extension(format!("{EXTENSION}.{}", std::process::id()));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(format!("{token}\n").as_bytes())?;
        fs::rename(&temporary, path)?;
        Ok(())
    }
}

/// The claim in a reply of one of these kinds. The id becomes a file's name, so
/// it must be one.
fn about(reply: &Reply, kinds: &[Status]) -> Option<(IssueId, ClaimReply)> {
    let claim: ClaimReply = reply.read().ok()?;
    let issue = claim.issue.parse().ok()?;
    kinds.contains(&claim.status).then_some((issue, claim))
}

/// Whether there is nothing, or cannot be anything.
fn is_absence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn read(path: &Path) -> Option<Token> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A remote's name as a file's name: a remote may be called `a/b` or `..`.
pub fn file_name(remote: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
    utf8_percent_encode(remote, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use git_claim_api::exit::Exit;

    use super::*;

    const LONG: &str = "ae1c05119bd34b3d8f3fb2a1c0de8a11";

    fn reply(status: &str, issue: &str, token: u64) -> Reply {
        let line = format!(
            r#"{{"status":"{status}","repo":"r.git","issue":"{issue}","holder":"a","token":{token},"now":"x"}}"#
        );
        Reply {
            line,
            exit: Exit::Done,
        }
    }

    fn id(text: &str) -> IssueId {
        text.parse().unwrap()
    }

    #[test]
    fn tokens_are_kept_until_the_release() {
        let dir = TempDir::new().unwrap();
        let tokens = Tokens::of(dir.path(), "a/../b");
        assert_eq!(tokens.find(&id("42")), None);
        tokens.keep(&reply("acquired", "42", 7)).unwrap();
        tokens.keep(&reply("acquired", LONG, 8)).unwrap();
        tokens.keep(&reply("renewed", LONG, 9)).unwrap();
        assert_eq!(tokens.find(&id("42")), Token::new(7).ok());
        assert_eq!(tokens.find(&id("ae1c")), Token::new(9).ok());
        assert_eq!(tokens.find(&id("4")), None);
        tokens.forget(&reply("released", LONG, 9)).unwrap();
        tokens.forget(&reply("released", LONG, 9)).unwrap();
        assert_eq!(tokens.find(&id("ae1c")), None);
        let other = Tokens::of(dir.path(), "origin");
        assert_eq!(other.find(&id("42")), None);
    }

    #[test]
    fn an_ambiguous_prefix_finds_nothing() {
        let dir = TempDir::new().unwrap();
        let tokens = Tokens::of(dir.path(), "origin");
        tokens.keep(&reply("acquired", LONG, 1)).unwrap();
        let other = LONG.replace("a11", "b22");
        tokens.keep(&reply("acquired", &other, 2)).unwrap();
        assert_eq!(tokens.find(&id("ae1c")), None);
        assert_eq!(tokens.find(&id(&other)), Token::new(2).ok());
    }

    #[test]
    fn nothing_is_kept_of_another_reply_or_under_a_strange_name() {
        let dir = TempDir::new().unwrap();
        let tokens = Tokens::of(dir.path(), "origin");
        tokens.keep(&reply("held", "42", 7)).unwrap();
        tokens.keep(&reply("acquired", "../42", 7)).unwrap();
        assert!(!dir.path().join("claims").exists());
    }

    #[test]
    fn a_remote_is_one_file_name() {
        for (remote, name) in [("origin", "origin"), ("a/b", "a%2Fb"), ("..", "%2E%2E")] {
            assert_eq!(file_name(remote), name);
        }
    }
}
