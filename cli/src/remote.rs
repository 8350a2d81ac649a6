//! Which remote is asked, and where it is.

use git_claim_api::text::escape;

use crate::bound::quote::quote;
use crate::error::{Failure, Result};
use crate::git::{Config, Git};
use crate::url::{self, Location};

/// The remote that a command asks.
#[derive(Debug, PartialEq, Eq)]
pub struct Remote {
    pub name: String,
    pub location: Location,
    /// As it is written, but for what `insteadOf` makes of it.
    pub url: String,
    pub source: Source,
}

/// What says where a remote's claims are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `remote.<name>.claimUrl`.
    ClaimUrl,
    /// The remote's own URL.
    Remote,
}

/// A name as one types it.
pub fn typed(name: &str) -> String {
    escape(&quote(name))
}

pub fn claim_url_of(remote: &str) -> String {
    typed(&format!("remote.{remote}.claimUrl"))
}

impl Source {
    /// The command that shows it.
    pub fn shown_by(self, remote: &str) -> String {
        match self {
            Source::ClaimUrl => format!("git config {}", claim_url_of(remote)),
            Source::Remote => "git remote -v".to_owned(),
        }
    }

    fn set_by(self, remote: &str) -> String {
        match self {
            Source::ClaimUrl => format!("git config {} <url>", claim_url_of(remote)),
            Source::Remote => format!("git remote set-url {} <url>", typed(remote)),
        }
    }

    fn called(self, remote: &str) -> String {
        match self {
            Source::ClaimUrl => format!("the URL in remote.{}.claimUrl", escape(remote)),
            Source::Remote => format!("the URL of remote '{}'", escape(remote)),
        }
    }
}

/// The remote to ask: `wanted`, else what the configuration says.
///
/// # Errors
/// There is none, or its URL leads nowhere that can be asked.
pub fn choose(git: &Git, wanted: Option<&str>) -> Result<Remote> {
    let name = name(&git.config, wanted, || git.branch())?;
    let (url, source) = url(git, &name)?;
    let location = locate(&url, source, &name)?;
    Ok(Remote {
        name,
        location,
        url,
        source,
    })
}

fn locate(url: &str, source: Source, remote: &str) -> Result<Location> {
    url::parse(url).map_err(|why| {
        Failure::error(format!(
            "{}, {}, cannot be used: {why}",
            source.called(remote),
            escape(url)
        ))
        .hint(format!("`{}` sets another", source.set_by(remote)))
    })
}

/// The names of the remotes, in the order of the configuration.
pub fn names(config: &Config) -> Vec<&str> {
    let mut names = Vec::new();
    for (name, key, _) in config.subsections("remote") {
        if matches!(key, "url" | "pushurl" | "claimurl") && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The name of the remote to ask: `wanted`, else what the configuration says.
///
/// # Errors
/// There is none.
pub fn name(
    config: &Config,
    wanted: Option<&str>,
    branch: impl FnOnce() -> Option<String>,
) -> Result<String> {
    let names = names(config);
    let known = |name: &str| {
        if names.contains(&name) {
            return Ok(name.to_owned());
        }
        let failure = Failure::error(format!("there is no remote '{}' here", escape(name)));
        Err(match (&names[..], wanted) {
            ([], _) => failure.hint(format!("`git remote add {} <url>` adds it", typed(name))),
            (_, Some(_)) => failure.hint(format!("there is {}", escape(&names.join(", ")))),
            ([first, ..], None) => {
                let first = typed(first);
                failure.hint(format!(
                    "there is {}; `--remote {first}` chooses one for this call, `git config \
                     claim.remote {first}` for all",
                    escape(&names.join(", "))
                ))
            }
        })
    };
    if let Some(name) = wanted.or_else(|| config.get("claim.remote")) {
        return known(name);
    }
    let fallback = match names[..] {
        [] => {
            return Err(Failure::error("this repository has no remote to ask")
                .hint("`git remote add origin <url>` adds one"));
        }
        [only] => only,
        _ => "origin",
    };
    // Which branch is checked out only matters if branches differ here.
    let of_branches = || {
        config
            .subsections("branch")
            .filter(|(_, key, value)| *key == "remote" && *value != ".")
    };
    if of_branches().any(|(_, _, remote)| remote != fallback)
        && let Some(branch) = branch()
        && let Some((_, _, remote)) = of_branches().filter(|(name, _, _)| *name == branch).last()
    {
        return known(remote);
    }
    known(fallback)
}

/// Where claims of this remote are asked for: its `claimUrl`, else where one
/// pushes.
fn url(git: &Git, name: &str) -> Result<(String, Source)> {
    let config = &git.config;
    if let Some(url) = config.get(&format!("remote.{name}.claimurl")) {
        return Ok((url.to_owned(), Source::ClaimUrl));
    }
    Ok((url_of_remote(git, name)?, Source::Remote))
}

/// Where one pushes.
fn url_of_remote(git: &Git, name: &str) -> Result<String> {
    let rewritten = git
        .config
        .subsections("url")
        .any(|(_, key, _)| matches!(key, "insteadof" | "pushinsteadof"));
    if rewritten {
        return Ok(git.line(&["remote", "get-url", "--push", name])?);
    }
    push_url(&git.config, name).ok_or_else(|| {
        Failure::error(format!("remote '{}' has no URL", escape(name))).hint(format!(
            "`git remote set-url {} <url>` sets it",
            typed(name)
        ))
    })
}

/// Where one pushes, but for what `insteadOf` makes of it.
fn push_url(config: &Config, name: &str) -> Option<String> {
    let first = |key: &str| first_of(config.all(&format!("remote.{name}.{key}")));
    first("pushurl").or_else(|| first("url"))
}

/// Where claims of this remote are asked for, as it stands in the configuration.
pub fn configured_url(config: &Config, name: &str) -> Option<String> {
    let claim_url = config.get(&format!("remote.{name}.claimurl"));
    claim_url
        .map(str::to_owned)
        .or_else(|| push_url(config, name))
}

/// The URL that git takes of several: the first, but an empty one clears those
/// before it.
fn first_of<'a>(urls: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut first = None;
    for url in urls {
        if url.is_empty() {
            first = None;
        } else if first.is_none() {
            first = Some(url.to_owned());
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &[&str]) -> Config {
        let entries: Vec<String> = lines
            .iter()
            .map(|line| line.replacen('=', "\n", 1) + "\0")
            .collect();
        Config::parse(&entries.concat())
    }

    const ORIGIN: &str = "remote.origin.url=host:o";
    const UPSTREAM: &str = "remote.up.url=host:u";

    #[test]
    fn the_first_that_names_a_remote_counts() {
        let on = |branch: &'static str| move || Some(branch.to_owned());
        for (lines, wanted, expected) in [
            (&[ORIGIN, UPSTREAM][..], Some("up"), "up"),
            (&[ORIGIN, UPSTREAM, "claim.remote=up"], None, "up"),
            (
                &[ORIGIN, UPSTREAM, "claim.remote=up"],
                Some("origin"),
                "origin",
            ),
            (&[ORIGIN, UPSTREAM, "branch.main.remote=up"], None, "up"),
            (
                &[ORIGIN, UPSTREAM, "branch.other.remote=up"],
                None,
                "origin",
            ),
            (&[ORIGIN, UPSTREAM, "branch.main.remote=."], None, "origin"),
            (&[UPSTREAM], None, "up"),
            (&[UPSTREAM, "branch.main.remote=."], None, "up"),
            (&[ORIGIN, UPSTREAM], None, "origin"),
        ] {
            let found = name(&config(lines), wanted, on("main")).unwrap();
            assert_eq!(found, expected, "{lines:?} {wanted:?}");
        }
    }

    #[test]
    fn a_remote_that_is_not_there_is_an_error() {
        let none = || None;
        for (lines, wanted, message) in [
            (&[][..], None, "no remote to ask"),
            (&[], Some("up"), "no remote 'up'"),
            (&[ORIGIN], Some("-x"), "no remote '-x'"),
            (&[ORIGIN, "claim.remote=up"], None, "no remote 'up'"),
        ] {
            let failure = name(&config(lines), wanted, none).unwrap_err();
            assert!(failure.message.contains(message), "{failure:?}");
        }
    }

    #[test]
    fn the_hint_says_which_remotes_there_are_and_how_to_choose() {
        const A: &str = "remote.a.url=u";
        const B: &str = "remote.b.url=u";
        for (lines, wanted, hint) in [
            (
                &[A, B][..],
                None,
                "there is a, b; `--remote a` chooses one for this call, `git config claim.remote a` for all",
            ),
            (&[A, B], Some("c"), "there is a, b"),
            (&[], Some("foo"), "`git remote add foo <url>` adds it"),
            (&[], Some("a;b"), "`git remote add 'a;b' <url>` adds it"),
            (&[], None, "`git remote add origin <url>` adds one"),
        ] {
            let failure = name(&config(lines), wanted, || None).unwrap_err();
            assert_eq!(failure.hint.as_deref(), Some(hint));
        }
    }

    #[test]
    fn git_is_not_asked_for_the_branch_where_it_does_not_matter() {
        let lines = [ORIGIN, "branch.main.remote=origin"];
        let asked = || -> Option<String> { panic!("asked") };
        assert_eq!(name(&config(&lines), None, asked).unwrap(), "origin");
    }

    #[test]
    fn the_hint_names_what_decided() {
        for (source, said, hint, shown) in [
            (
                Source::ClaimUrl,
                "remote.up.claimUrl, host:, cannot",
                "`git config remote.up.claimUrl <url>`",
                "git config remote.up.claimUrl",
            ),
            (
                Source::Remote,
                "remote 'up', host:, cannot",
                "`git remote set-url up <url>`",
                "git remote -v",
            ),
        ] {
            let failure = locate("host:", source, "up").unwrap_err();
            assert!(failure.message.contains(said), "{failure:?}");
            assert!(failure.hint.unwrap().contains(hint));
            assert_eq!(source.shown_by("up"), shown);
        }
    }

    #[test]
    fn an_empty_url_clears_the_list() {
        assert_eq!(first_of(["a", "b"].into_iter()).as_deref(), Some("a"));
        assert_eq!(first_of(["a", "", "b"].into_iter()).as_deref(), Some("b"));
        assert_eq!(first_of(["a", ""].into_iter()), None);
    }
}
