//! From every spelling of a repository to the one id and the one place.
//!
//! A name is put in order as text first, so that nothing outside reposDir is
//! ever looked at, not even to learn whether it exists; only then are links
//! followed, and what they lead to must lie below reposDir as well.

use std::io;
use std::path::{Path, PathBuf};

use git_claim_api::text::is_unsafe;

/// The longest id that the plugin's interface takes, in bytes.
pub const MOST_ID: usize = 255;

/// A repository that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    /// Its permanent id: the real path below reposDir.
    pub id: String,
    /// Its git directory's real path.
    pub path: PathBuf,
}

/// The folder below which repositories are served.
#[derive(Debug, Clone)]
pub struct Repos {
    /// As the settings name it.
    configured: PathBuf,
    /// Links resolved.
    root: PathBuf,
}

impl Repos {
    /// The repositories below `repos_dir`, an absolute path.
    ///
    /// # Errors
    /// It is not there, or cannot be reached.
    pub fn new(repos_dir: &Path) -> io::Result<Repos> {
        Ok(Repos {
            configured: repos_dir.to_owned(),
            root: repos_dir.canonicalize()?,
        })
    }

    /// reposDir, links resolved.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The repository that `name` stands for: the path in a git URL.
    pub fn resolve(&self, name: &str) -> Option<Repo> {
        let relative = self.relative(name)?;
        candidates(&relative).find_map(|candidate| self.at(&self.root.join(candidate)))
    }

    /// The repository with this very id.
    pub fn by_id(&self, id: &str) -> Option<Repo> {
        self.at(&self.root.join(in_order(id, false)?))
            .filter(|repo| repo.id == id)
    }

    /// The id of the git directory whose real path is `path`, if it lies below
    /// reposDir.
    pub fn id_of(&self, path: &Path) -> Option<String> {
        let id = path.strip_prefix(&self.root).ok()?.to_str()?;
        valid_id(id).then(|| id.to_owned())
    }

    /// `name` below reposDir, as text alone.
    fn relative(&self, name: &str) -> Option<String> {
        // git sends `~/r.git` for ssh://host/~/r.git, and reposDir is the home
        // that is meant.
        let name = name
            .strip_prefix("/~/")
            .or(name.strip_prefix("~/"))
            .unwrap_or(name);
        let absolute = name.starts_with('/');
        let relative = in_order(name, absolute)?;
        if absolute {
            let whole = Path::new("/").join(&relative);
            for root in [&self.root, &self.configured] {
                if let Ok(below) = whole.strip_prefix(root) {
                    return some_text(below.to_str()?);
                }
            }
        }
        some_text(&relative)
    }

    /// The repository whose git directory is at `path`, links resolved.
    fn at(&self, path: &Path) -> Option<Repo> {
        let path = path.canonicalize().ok()?;
        let id = self.id_of(&path)?;
        is_git_directory(&path).then_some(Repo { id, path })
    }
}

/// The places where git looks for the repository `path`, in its order.
pub fn candidates(path: &str) -> impl Iterator<Item = String> {
    ["/.git", "", ".git/.git", ".git"]
        .into_iter()
        .map(move |suffix| format!("{path}{suffix}"))
}

/// Whether `id` can be one: 1 to 255 bytes of plain text.
pub fn valid_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MOST_ID && !id.chars().any(is_unsafe)
}

/// The parts of `name` without `.`, `..`, empty ones and slashes at either end.
/// `None` where `..` leads above the start; above the root of the file system
/// is the root itself.
fn in_order(name: &str, absolute: bool) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() && !absolute {
                    return None;
                }
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether `path` is a git directory, as git itself decides it, with its objects
/// and refs in it: a `commondir` would lead to another one, anywhere.
fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok()
        && path.join("commondir").symlink_metadata().is_err()
        && path.join("objects").is_dir()
        && path.join("refs").is_dir()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    fn git_directory(path: &Path) {
        std::fs::create_dir_all(path.join("objects")).unwrap();
        std::fs::create_dir_all(path.join("refs")).unwrap();
        std::fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    /// reposDir `git` beside a repository that must not be reached.
    fn site() -> (TempDir, Repos) {
        let site = TempDir::new().unwrap();
        let at = |path: &str| site.child(path).path().to_owned();
        git_directory(&at("git/r.git"));
        git_directory(&at("git/acme/app.git"));
        git_directory(&at("git/work/.git"));
        git_directory(&at("git/my repo.git"));
        git_directory(&at("secret.git"));
        std::fs::create_dir_all(at("git/empty")).unwrap();
        std::fs::write(at("git/file.git"), "").unwrap();
        symlink("r.git", at("git/alias.git")).unwrap();
        symlink("acme", at("git/team")).unwrap();
        symlink("../secret.git", at("git/out.git")).unwrap();
        symlink("..", at("git/up")).unwrap();
        symlink("git", at("link")).unwrap();
        let repos = Repos::new(&at("link")).unwrap();
        (site, repos)
    }

    #[test]
    fn a_git_directory_that_borrows_anothers_is_not_served() {
        let dir = TempDir::new().unwrap();
        git_directory(&dir.child("a.git"));
        let repos = Repos::new(dir.path()).unwrap();
        assert!(repos.resolve("a.git").is_some());
        dir.child("a.git/commondir")
            .write_str("/elsewhere")
            .unwrap();
        assert!(repos.resolve("a.git").is_none());
    }

    #[test]
    fn every_spelling_is_one_repository() {
        let (site, repos) = site();
        let root = site.path().canonicalize().unwrap();
        let real = root.join("git").display().to_string();
        let link = site.child("link").path().display().to_string();
        for (spelling, id) in [
            ("r.git", "r.git"),
            ("r", "r.git"),
            ("/r.git", "r.git"),
            ("/r", "r.git"),
            ("~/r.git", "r.git"),
            ("/~/r.git", "r.git"),
            ("//r.git", "r.git"),
            ("r.git/", "r.git"),
            ("r/", "r.git"),
            ("./r.git", "r.git"),
            ("acme/../r.git", "r.git"),
            ("nothing/../r.git", "r.git"),
            ("/../r.git", "r.git"),
            ("alias.git", "r.git"),
            ("alias", "r.git"),
            ("acme/app", "acme/app.git"),
            ("acme//app.git", "acme/app.git"),
            ("acme/./app.git/.", "acme/app.git"),
            ("team/app", "acme/app.git"),
            ("work", "work/.git"),
            ("work/.git", "work/.git"),
            ("my repo", "my repo.git"),
            (&format!("{real}/r.git"), "r.git"),
            (&format!("{real}/r"), "r.git"),
            (&format!("{link}/r.git"), "r.git"),
            (&format!("{link}/./team/app/"), "acme/app.git"),
            (&format!("/..{real}/r.git"), "r.git"),
        ] {
            let repo = repos.resolve(spelling);
            let expected = Repo {
                id: id.to_owned(),
                path: root.join("git").join(id),
            };
            assert_eq!(repo, Some(expected.clone()), "{spelling}");
            assert_eq!(repos.by_id(id), Some(expected), "{spelling}");
        }
    }

    #[test]
    fn nothing_outside_is_reachable_and_nothing_else_is_a_repository() {
        let (site, repos) = site();
        let secret = site.child("secret.git").path().display().to_string();
        let real = site.path().canonicalize().unwrap().join("git");
        for name in [
            "",
            "/",
            ".",
            "~",
            "~/",
            "..",
            "../secret.git",
            "../git/r.git",
            "acme/../../secret.git",
            "~/../secret.git",
            "/~/../secret.git",
            "out.git",
            "out",
            "up/secret.git",
            "up/git/../secret.git",
            &secret,
            &format!("{}/../secret.git", real.display()),
            &real.display().to_string(),
            "empty",
            "file",
            "file.git",
            "acme",
            "r.git/objects",
            "R.git",
            "r.gi",
            "r.git.git.git",
            "~ann/r.git",
            "r.git\0",
            "/proc/self/root",
        ] {
            assert_eq!(repos.resolve(name), None, "{name:?}");
        }
        for id in ["alias.git", "r", "../secret.git", "/r.git", "./r.git", ""] {
            assert_eq!(repos.by_id(id), None, "{id:?}");
        }
    }

    #[test]
    fn reposdir_itself_is_no_repository() {
        let site = TempDir::new().unwrap();
        git_directory(site.path());
        let repos = Repos::new(site.path()).unwrap();
        for name in ["/", ".", "x/..", &site.path().display().to_string()] {
            assert_eq!(repos.resolve(name), None, "{name:?}");
        }
    }
}
