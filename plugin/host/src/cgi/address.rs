//! Which page is meant, from the path behind the program's own, and how pages
//! link to each other: relative, so that no word of the request decides where a
//! link leads.

use git_claim_api::words::encode;

/// How a repository's name ends; what comes behind it is an issue.
const SUFFIX: &str = ".git";

/// A repository's page, or an issue's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address<'a> {
    /// As in a git URL.
    pub repo: &'a str,
    pub issue: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// The page at `/acme/app.git` or `/acme/app.git/ISSUE`, as CGI's PATH_INFO
    /// has it: percent-decoded.
    pub fn parse(path: &'a str) -> Option<Address<'a>> {
        let repo = path.strip_prefix('/')?;
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        if !repo.split('/').all(is_plain) {
            return None;
        }
        if repo.ends_with(SUFFIX) {
            return Some(Address { repo, issue: None });
        }
        let (repo, issue) = repo.rsplit_once('/')?;
        repo.ends_with(SUFFIX).then_some(Address {
            repo,
            issue: Some(issue),
        })
    }

    /// From the repository's page to an issue's.
    pub fn to_issue(self, issue: &str) -> String {
        format!("./{}/{}", encode(self.last()), encode(issue))
    }

    /// From an issue's page to the repository's.
    pub fn to_repository(self) -> String {
        format!("../{}", encode(self.last()))
    }

    /// The last part of the repository's path.
    fn last(self) -> &'a str {
        match self.repo.rsplit_once('/') {
            Some((_, last)) => last,
            None => self.repo,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_a_repository_or_an_issue_or_nothing() {
        for (path, page) in [
            ("/app.git", Some(("app.git", None))),
            ("/acme/app.git", Some(("acme/app.git", None))),
            ("/acme/app.git/42", Some(("acme/app.git", Some("42")))),
            ("/work/.git", Some(("work/.git", None))),
            ("/a.git/b.git", Some(("a.git/b.git", None))),
            ("/a.git/b.git/7", Some(("a.git/b.git", Some("7")))),
            ("/my repo.git", Some(("my repo.git", None))),
            ("", None),
            ("/", None),
            ("acme/app.git", None),
            ("/acme/app", None),
            ("/acme/app.git/", None),
            ("/acme/app.git/42/log", None),
            ("/acme//app.git", None),
            ("//app.git", None),
            ("/acme/../app.git", None),
            ("/acme/./app.git", None),
        ] {
            let parsed = Address::parse(path).map(|page| (page.repo, page.issue));
            assert_eq!(parsed, page, "{path:?}");
        }
    }

    #[test]
    fn links_stay_beside_the_page_whatever_a_repository_is_called() {
        for (repo, to_issue, to_repository) in [
            ("acme/app.git", "./app.git/42", "../app.git"),
            ("app.git", "./app.git/42", "../app.git"),
            (
                "javascript:x.git",
                "./javascript:x.git/42",
                "../javascript:x.git",
            ),
            (
                "a/\"?<#.git",
                "./%22%3F%3C%23.git/42",
                "../%22%3F%3C%23.git",
            ),
        ] {
            let page = Address { repo, issue: None };
            assert_eq!(page.to_issue("42"), to_issue);
            assert_eq!(page.to_repository(), to_repository);
        }
    }
}
