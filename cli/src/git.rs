//! What git knows: asked of git itself, as libgit2 knows neither `git -c` nor
//! every repository format.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// The repository that a command runs in.
#[derive(Debug)]
pub struct Git {
    /// The worktree's own git directory, absolute.
    pub git_dir: PathBuf,
    /// What all worktrees of the repository share, absolute.
    pub common_dir: PathBuf,
    /// What a relative URL is relative to: the worktree's top, or a bare
    /// repository itself.
    pub top: PathBuf,
    /// The variables that belong to this repository and must not reach a
    /// program that works on another.
    pub local_variables: Vec<String>,
    pub config: Config,
}

impl Git {
    /// Asks git about the current directory.
    ///
    /// # Errors
    /// There is no git, or no repository.
    pub fn discover() -> Result<Git> {
        // Both at once: together they cost as much as one.
        let config = start(&["config", "-z", "--list"])?;
        let places = start(&[
            "rev-parse",
            "--absolute-git-dir",
            "--local-env-vars",
            "--path-format=absolute",
            "--git-common-dir",
            "--local-env-vars",
            "--show-cdup",
        ])?;
        let places = finish(places)?;
        let config = finish(config)?;
        // A folder's name may have line breaks in it; the variables' names, which
        // stand behind each folder, have none.
        let is_variable = |line: &&str| line.starts_with("GIT_");
        let (git_dir, rest) = places
            .split_once("\nGIT_")
            .context("git does not say where the repository is")?;
        let git_dir = PathBuf::from(git_dir);
        let rest = format!("GIT_{rest}");
        let mut lines = rest.lines().peekable();
        let mut local_variables = Vec::new();
        while let Some(line) = lines.next_if(is_variable) {
            local_variables.push(line.to_owned());
        }
        let mut common_dir = Vec::new();
        while let Some(line) = lines.next_if(|line| !is_variable(line)) {
            common_dir.push(line);
        }
        let common_dir = PathBuf::from(common_dir.join("\n"));
        // A bare repository has no such line.
        let up = lines.find(|line| !is_variable(line)).map(str::to_owned);
        let top = match up {
            Some(up) => std::env::current_dir()
                .context("there is no current directory")?
                .join(up),
            None => git_dir.clone(),
        };
        Ok(Git {
            git_dir,
            common_dir,
            top,
            local_variables,
            config: Config::parse(&config),
        })
    }

    /// One line that git answers.
    ///
    /// # Errors
    /// What git says.
    pub fn line(&self, arguments: &[&str]) -> Result<String> {
        let text = finish(start(arguments)?)?;
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }

    /// The current branch's short name; `None` if HEAD is detached.
    pub fn branch(&self) -> Option<String> {
        self.line(&["symbolic-ref", "-q", "--short", "HEAD"]).ok()
    }

    /// `path` against the top, as git reads a relative URL.
    pub fn absolute(&self, path: &str) -> PathBuf {
        self.top.join(Path::new(path))
    }
}

fn start(arguments: &[&str]) -> Result<std::process::Child> {
    Command::new("git")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("git cannot be run")
}

fn finish(child: std::process::Child) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().context("git cannot be heard")?;
    if !status.success() {
        let words = String::from_utf8_lossy(&stderr);
        let words = words.trim();
        bail!("{}", words.strip_prefix("fatal: ").unwrap_or(words));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// git's configuration, all sources in git's order. Sections and names are in
/// lower case, subsections as they are written.
#[derive(Debug, Default)]
pub struct Config(Vec<(String, String)>);

impl Config {
    /// Reads `git config -z --list`.
    pub fn parse(text: &str) -> Config {
        let entries = text.split_terminator('\0').map(|entry| {
            // A key without a value stands for true.
            let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            (key.to_owned(), value.to_owned())
        });
        Config(entries.collect())
    }

    /// The value that counts: the last.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all(key).last()
    }

    /// All values of a key.
    pub fn all<'config>(&'config self, key: &str) -> impl Iterator<Item = &'config str> {
        self.entries()
            .filter(move |(k, _)| *k == key)
            .map(|(_, value)| value)
    }

    /// All keys with their values.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The subsection, name and value of each `section.<subsection>.<name>`.
    pub fn subsections<'a>(
        &'a self,
        section: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
        self.entries().filter_map(move |(key, value)| {
            let rest = key.strip_prefix(section)?.strip_prefix('.')?;
            let (subsection, name) = rest.rsplit_once('.')?;
            Some((subsection, name, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn configuration_as_git_lists_it() {
        let config = Config::parse(
            "claim.remote\nfirst\0claim.remote\nlast\0core.bare\0\
             remote.a.b.url\ntwo\nlines\0remote.pushdefault\nx\0",
        );
        assert_eq!(config.get("claim.remote"), Some("last"));
        assert_eq!(config.all("claim.remote").count(), 2);
        assert_eq!(config.get("core.bare"), Some("true"));
        assert_eq!(config.get("core.other"), None);
        let remotes: Vec<_> = config.subsections("remote").collect();
        assert_eq!(remotes, [("a.b", "url", "two\nlines")]);
    }
}
