//! Where a URL leads, by git's own rules (connect.c and url.c): one that git
//! reads in one way must not be read in another here.

use percent_encoding::percent_decode_str;

/// Where a remote's repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Ssh(Ssh),
    /// A path on this machine, as it stands in the URL.
    Local(String),
    /// `http://` or `https://`, which no verb can be asked over.
    Http,
    /// Another protocol or remote helper, by its name.
    Other(String),
}

/// The parts of an SSH URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssh {
    /// `host` or `user@host`, as ssh takes it.
    pub host: String,
    pub port: Option<u16>,
    /// The repository's path, as git would send it.
    pub path: String,
}

/// Why a URL is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("it names no path")]
    NoPath,
    #[error("it names no host")]
    NoHost,
    #[error("its host begins with `-`")]
    StrangeHost,
    #[error("its path begins with `-`")]
    StrangePath,
    #[error("it is not UTF-8 once it is decoded")]
    NotUtf8,
}

/// Reads a URL.
///
/// # Errors
/// What git refuses too.
pub fn parse(url: &str) -> Result<Location, BadUrl> {
    if let Some(helper) = helper(url) {
        return Ok(Location::Other(helper.to_owned()));
    }
    let Some((scheme, rest)) = url
        .split_once("://")
        .filter(|(scheme, _)| is_scheme(scheme))
    else {
        return if is_local(url) {
            Ok(Location::Local(url.to_owned()))
        } else {
            scp_form(url)
        };
    };
    match scheme {
        "ssh" | "git+ssh" | "ssh+git" => ssh_form(&decoded(rest)?),
        "file" => file_form(&decoded(rest)?),
        "http" | "https" => Ok(Location::Http),
        other => Ok(Location::Other(other.to_owned())),
    }
}

/// The remote helper in `helper::address`.
fn helper(url: &str) -> Option<&str> {
    let (name, _) = url.split_once("::")?;
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    plain.then_some(name)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// A path, unless a `:` stands before any `/`.
fn is_local(url: &str) -> bool {
    match (url.find(':'), url.find('/')) {
        (None, _) => true,
        (Some(colon), Some(slash)) => slash < colon,
        (Some(_), None) => false,
    }
}

fn decoded(text: &str) -> Result<String, BadUrl> {
    percent_decode_str(text)
        .decode_utf8()
        .map(String::from)
        .map_err(|_| BadUrl::NotUtf8)
}

/// `[user@]host[:port]/path`; a path that begins with `/~` is one in a home.
fn ssh_form(rest: &str) -> Result<Location, BadUrl> {
    let from = end_of_brackets(rest);
    let slash = rest[from..].find('/').ok_or(BadUrl::NoPath)? + from;
    let (host, path) = rest.split_at(slash);
    ssh(host, path)
}

/// `[user@]host:path`, nothing decoded.
fn scp_form(url: &str) -> Result<Location, BadUrl> {
    let from = end_of_brackets(url);
    let colon = url[from..].find(':').ok_or(BadUrl::NoPath)? + from;
    ssh(&url[..colon], &url[colon + 1..])
}

fn file_form(rest: &str) -> Result<Location, BadUrl> {
    let slash = rest.find('/').ok_or(BadUrl::NoPath)?;
    Ok(Location::Local(rest[slash..].to_owned()))
}

/// Where the search for the host's end begins: behind `[…]`, if it has one.
fn end_of_brackets(text: &str) -> usize {
    bracket(text)
        .and_then(|open| Some(open + text[open..].find(']')?))
        .unwrap_or(0)
}

/// Where a bracketed host begins.
fn bracket(text: &str) -> Option<usize> {
    match text.find("@[") {
        Some(at) => Some(at + 1),
        None => text.starts_with('[').then_some(0),
    }
}

fn ssh(host_and_port: &str, path: &str) -> Result<Location, BadUrl> {
    // git looks at the second character alone, whatever the first is.
    let path = match path.char_indices().nth(1) {
        Some((at, '~')) => &path[at..],
        _ => path,
    };
    let (host, port) = host_and_port_of(host_and_port);
    if host.is_empty() {
        return Err(BadUrl::NoHost);
    }
    if host.starts_with('-') {
        return Err(BadUrl::StrangeHost);
    }
    if path.starts_with('-') {
        return Err(BadUrl::StrangePath);
    }
    if path.is_empty() {
        return Err(BadUrl::NoPath);
    }
    Ok(Location::Ssh(Ssh {
        host,
        port,
        path: path.to_owned(),
    }))
}

/// Takes brackets off, and a port where there is a valid one: behind the
/// brackets, or inside of them (`[host:22]:path`).
fn host_and_port_of(text: &str) -> (String, Option<u16>) {
    let close =
        bracket(text).and_then(|open| text[open..].find(']').map(|length| (open, open + length)));
    let Some((open, close)) = close else {
        return split_port(text);
    };
    let inside = format!("{}{}", &text[..open], &text[open + 1..close]);
    let behind = &text[close + 1..];
    match behind.split_once(':') {
        Some(("", port)) => match valid_port(port) {
            Some(port) => (inside, Some(port)),
            None => split_port(&inside),
        },
        _ => split_port(&inside),
    }
}

fn split_port(text: &str) -> (String, Option<u16>) {
    match text.split_once(':') {
        Some((host, "")) => (host.to_owned(), None),
        Some((host, port)) => match valid_port(port) {
            Some(port) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
        None => (text.to_owned(), None),
    }
}

fn valid_port(text: &str) -> Option<u16> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Every form, good and odd.
    const URLS: &[&str] = &[
        "host:path",
        "host:/path",
        "user@host:path/to/repo.git",
        "user@host:~/repo",
        "host:~user/repo",
        "host:/~user/repo",
        "host:a~b",
        "host:a b%20c",
        "a%20b:c",
        "ssh://host/path",
        "ssh://user@host/path",
        "ssh://host:2222/path",
        "ssh://user@host:2222/path",
        "ssh://host/~user/repo",
        "ssh://host/a%20b/c",
        "ssh://a%40b@host/x",
        "ssh://host:/path",
        "ssh://host:99999/path",
        "ssh://host:22x/path",
        "ssh://host/%zz",
        "git+ssh://host/path",
        "ssh+git://host/path",
        "[::1]:path",
        "user@[::1]:path",
        "[host:2222]:path",
        "user@[host:2222]:path",
        "[host]:22:path",
        "ssh://[::1]/path",
        "ssh://[::1]:2222/path",
        "ssh://user@[::1]:2222/path",
        "ssh://user@[::1]/~u/x",
        "ssh://[host:2222]/path",
        "file:/x/y",
        "file:///a%20b",
        "file://host/x",
        "/absolute/path",
        "relative/path",
        "./a:b",
        "../up",
        "/a:b",
        "~/x",
        "plain",
        "ssh://host",
        "ssh://",
    ];

    /// What git makes of a URL, in its own words.
    fn git_says(url: &str) -> Option<String> {
        let output = Command::new("git")
            .args(["fetch-pack", "--diag-url", url])
            // Any repository will do, but it wants one.
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        if !output.status.success() {
            return None;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("Diag: url=") && !line.contains("hostandport="));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    fn we_say(url: &str) -> Option<String> {
        match parse(url).ok()? {
            Location::Ssh(Ssh { host, port, path }) => {
                let port = port.map_or_else(|| "NONE".to_owned(), |port| port.to_string());
                Some(format!(
                    "Diag: protocol=ssh\nDiag: userandhost={host}\nDiag: port={port}\nDiag: path={path}"
                ))
            }
            Location::Local(path) => Some(format!("Diag: protocol=file\nDiag: path={path}")),
            Location::Http | Location::Other(_) => None,
        }
    }

    #[test]
    fn urls_are_read_as_git_reads_them() {
        let inside = Command::new("git")
            .args(["rev-parse", "--git-dir"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        if !inside.status.success() {
            return; // a source package without a repository has no oracle
        }
        for url in URLS {
            assert_eq!(we_say(url), git_says(url), "{url}");
        }
    }

    #[test]
    fn what_git_would_not_connect_to_is_refused() {
        for (url, why) in [
            ("ssh://-oProxyCommand=x/path", BadUrl::StrangeHost),
            ("-oProxyCommand=x:path", BadUrl::StrangeHost),
            ("host:-path", BadUrl::StrangePath),
            ("host:", BadUrl::NoPath),
            (":path", BadUrl::NoHost),
            ("ssh:///path", BadUrl::NoHost),
            ("ssh://host/%ff", BadUrl::NotUtf8),
        ] {
            assert_eq!(parse(url), Err(why), "{url}");
        }
    }

    #[test]
    fn what_no_verb_can_be_asked_over_is_told_apart() {
        for (url, location) in [
            ("https://host/path", Location::Http),
            ("http://host/path", Location::Http),
            ("git://host/path", Location::Other("git".into())),
            ("ftp://host/path", Location::Other("ftp".into())),
            ("ext::sh -c x", Location::Other("ext".into())),
            ("SSH://host/path", Location::Other("SSH".into())),
        ] {
            assert_eq!(parse(url), Ok(location), "{url}");
        }
    }
}
