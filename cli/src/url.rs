//! Where a URL leads, by git's own rules (connect.c and url.c): one that git
//! reads in one way must not be read in another here.

use percent_encoding::percent_decode_str;

/// Where a remote's repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Ssh(Ssh),
    /// A path on this machine, as it stands in the URL.
    Local(String),
    /// Another protocol or remote helper, by its name; no verb can be asked over it.
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
    #[error("what stands before its `://` is no protocol")]
    NoProtocol,
    #[error("it names no path")]
    NoPath,
    #[error("it names no host")]
    NoHost,
    #[error("its host begins with `-`")]
    StrangeHost,
    #[error("its path begins with `-`")]
    StrangePath,
    #[error("it holds control characters")]
    ControlCharacters,
    #[error("it is not UTF-8 once it is decoded")]
    NotUtf8,
}

/// Reads a URL.
///
/// # Errors
/// What git refuses too, or ssh and the server behind it.
pub fn parse(url: &str) -> Result<Location, BadUrl> {
    if let Some(helper) = helper(url) {
        return Ok(Location::Other(helper.to_owned()));
    }
    let Some((scheme, rest)) = url
        .split_once("://")
        .filter(|(scheme, _)| is_scheme(scheme))
    else {
        return if url.contains("://") {
            Err(BadUrl::NoProtocol)
        } else if is_local(url) {
            // git takes off what might be a host, though there is none.
            Ok(Location::Local(url[end_of_brackets(url)..].to_owned()))
        } else {
            scp_form(url)
        };
    };
    match scheme {
        "ssh" | "git+ssh" | "ssh+git" => ssh_form(&decoded(rest)?),
        "file" => file_form(&decoded(rest)?),
        other => Ok(Location::Other(other.to_owned())),
    }
}

/// The remote helper in `helper::address`.
fn helper(url: &str) -> Option<&str> {
    let (name, _) = url.split_once("::")?;
    is_scheme(name).then_some(name)
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

/// As git does, which leaves a zero byte as it is written.
fn decoded(text: &str) -> Result<String, BadUrl> {
    percent_decode_str(&text.replace("%00", "%2500"))
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
    let from = end_of_brackets(rest);
    let slash = rest[from..].find('/').ok_or(BadUrl::NoPath)? + from;
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
    // git looks at the second byte alone, whatever the first is.
    let path = match path.as_bytes() {
        [_, b'~', ..] => &path[1..],
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
    if host.chars().chain(path.chars()).any(char::is_control) {
        return Err(BadUrl::ControlCharacters);
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
        return match text.split_once(':') {
            Some((host, "")) => (host.to_owned(), None),
            _ => split_port(text),
        };
    };
    let inside = format!("{}{}", &text[..open], &text[open + 1..close]);
    // What else stands behind the brackets is nothing to git.
    let port = text[close + 1..].split_once(':');
    match port.and_then(|(_, port)| valid_port(port)) {
        Some(port) => (inside, Some(port)),
        None => split_port(&inside),
    }
}

fn split_port(text: &str) -> (String, Option<u16>) {
    let found = text
        .split_once(':')
        .and_then(|(host, port)| Some((host.to_owned(), valid_port(port)?)));
    match found {
        Some((host, port)) => (host, Some(port)),
        None => (text.to_owned(), None),
    }
}

/// A number as strtol(3) reads it.
fn valid_port(text: &str) -> Option<u16> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let port: u16 = digits.parse().ok().filter(|_| is_number)?;
    (port == 0 || !text.starts_with('-')).then_some(port)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz::{QUICK, fuzz, of, same};

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
            .filter(|line| !line.starts_with("Diag: url=") && !line.contains("hostandport="))
            // git leaves it to ssh to read the number.
            .map(
                |line| match line.strip_prefix("Diag: port=").map(valid_port) {
                    Some(Some(port)) => format!("Diag: port={port}"),
                    _ => line.to_owned(),
                },
            );
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
            Location::Other(_) => None,
        }
    }

    /// Whether git refuses it too; it is less strict about the rest.
    fn is_nothing_to_git(url: &str) -> bool {
        parse(url) == Err(BadUrl::NoProtocol)
    }

    /// git's answers are lines, and its arguments text.
    fn is_sayable(url: &str) -> bool {
        !url.is_empty() && !url.starts_with('-') && !url.contains(|c: char| c.is_control())
    }

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        of(
            &[
                "ssh", "git+ssh", "file", "://", ":", "/", "//", "~", "host", "user", "@", "[",
                "]", "::1", "22", "99999", "-o", "%20", "%2f", "%", "%ff", "a b", ".", "..", "é",
                "0", "22x",
            ],
            9,
        )
    }

    /// `text` with all that could mean something percent-encoded.
    fn encoded(text: &str) -> String {
        utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
    }

    /// Other ways to write down where a URL leads.
    fn written_again(Ssh { host, port, path }: &Ssh) -> Vec<String> {
        // What brackets and colons mean in the wrong place is git's to know.
        let is_plain = !host.contains([':', '[', ']', '/']);
        if !is_plain || path.starts_with(':') || path.contains("@[") {
            return Vec::new();
        }
        let rest = match (port, path.as_bytes()) {
            (Some(port), [b'/', second, ..]) if *second != b'~' => format!("{host}:{port}{path}"),
            (None, [b'/', second, ..]) if *second != b'~' => format!("{host}{path}"),
            (Some(port), [b'~', ..]) => format!("{host}:{port}/{path}"),
            (None, [b'~', ..]) => format!("{host}/{path}"),
            (None, [_, b'~', ..]) | (Some(_), _) => return Vec::new(),
            (None, _) => return vec![format!("{host}:{path}")],
        };
        let plain = (!rest.contains('%')).then(|| format!("ssh://{rest}"));
        plain
            .into_iter()
            .chain([format!("git+ssh://{}", encoded(&rest))])
            .collect()
    }

    #[test]
    fn where_a_url_leads_is_no_option_and_written_again_it_leads_there() {
        fuzz("url", QUICK, pieces(), |input| {
            let url = String::from_utf8_lossy(input);
            let Ok(location) = parse(&url) else {
                return Ok(());
            };
            match &location {
                Location::Ssh(ssh) => {
                    for text in [&ssh.host, &ssh.path] {
                        prop_assert!(!text.is_empty() && !text.starts_with('-'), "{ssh:?}");
                        prop_assert!(!text.contains(char::is_control), "{ssh:?}");
                    }
                    for url in written_again(ssh) {
                        same(&parse(&url).as_ref(), &Ok(&location))?;
                    }
                }
                Location::Local(path) => {
                    prop_assert!(url.ends_with(path.as_str()) || url.contains('%'))
                }
                Location::Other(name) => {
                    prop_assert!(url.starts_with(name.as_str()) && !name.starts_with('-'));
                }
            }
            Ok(())
        });
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
        fuzz("url", 200, pieces(), |input| {
            let Ok(url) = std::str::from_utf8(input) else {
                return Ok(());
            };
            let said = we_say(url);
            if !is_sayable(url) || (said.is_none() && !is_nothing_to_git(url)) {
                return Ok(());
            }
            same(&said, &git_says(url))
        });
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
            ("ssh://host%0a/path", BadUrl::ControlCharacters),
            ("host:pa\x1bth", BadUrl::ControlCharacters),
        ] {
            assert_eq!(parse(url), Err(why), "{url}");
        }
    }

    #[test]
    fn what_no_verb_can_be_asked_over_is_told_apart() {
        for (url, location) in [
            ("https://host/path", Location::Other("https".into())),
            ("http://host/path", Location::Other("http".into())),
            ("git://host/path", Location::Other("git".into())),
            ("ftp://host/path", Location::Other("ftp".into())),
            ("ext::sh -c x", Location::Other("ext".into())),
            ("a.b+c::x", Location::Other("a.b+c".into())),
            ("SSH://host/path", Location::Other("SSH".into())),
        ] {
            assert_eq!(parse(url), Ok(location), "{url}");
        }
    }
}
