//! Who may do what: lists of names, `@groups` and `*`, from the settings file
//! and from a repository's own config.

use std::collections::BTreeMap;
use std::fmt;

use git_claim_api::access::Access;

/// The members of each group.
pub type Groups = BTreeMap<String, Vec<String>>;

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    Everyone,
    Group(String),
    Name(String),
}

impl Who {
    /// The entries of one line: `alice`, or `alice, @devs`.
    pub fn parse_line(line: &str) -> impl Iterator<Item = Who> {
        words(line).map(|word| match word.strip_prefix('@') {
            _ if word == "*" => Who::Everyone,
            Some(group) => Who::Group(group.to_owned()),
            None => Who::Name(word.to_owned()),
        })
    }

    fn includes(&self, name: &str, groups: &Groups) -> bool {
        match self {
            Who::Everyone => true,
            Who::Name(listed) => listed == name,
            Who::Group(group) => groups
                .get(group)
                .is_some_and(|members| members.iter().any(|member| member == name)),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Everyone => f.write_str("*"),
            Who::Group(group) => write!(f, "@{group}"),
            Who::Name(name) => f.write_str(name),
        }
    }
}

/// The words of a line, divided by blanks or commas.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
}

/// The three lists; `None` where nothing is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    pub read: Option<Vec<Who>>,
    pub write: Option<Vec<Who>>,
    pub admin: Option<Vec<Who>>,
}

impl Rules {
    /// The list behind a key as git reports it, if it is one of the three.
    pub fn list_mut(&mut self, key: &str) -> Option<&mut Option<Vec<Who>>> {
        match key {
            "claim.read" => Some(&mut self.read),
            "claim.write" => Some(&mut self.write),
            "claim.admin" => Some(&mut self.admin),
            _ => None,
        }
    }

    /// The list that grants `access` by itself.
    pub fn list(&self, access: Access) -> Option<&Vec<Who>> {
        match access {
            Access::Read => self.read.as_ref(),
            Access::Write => self.write.as_ref(),
            Access::Admin => self.admin.as_ref(),
        }
    }

    /// These rules, and those of `below` for what is not set here.
    #[must_use]
    pub fn or(self, below: &Rules) -> Rules {
        Rules {
            read: self.read.or_else(|| below.read.clone()),
            write: self.write.or_else(|| below.write.clone()),
            admin: self.admin.or_else(|| below.admin.clone()),
        }
    }

    /// The most that `name` may do, as each right includes those before it, and
    /// the entry that grants it.
    pub fn grant(&self, name: &str, groups: &Groups) -> Option<(Access, &Who)> {
        [Access::Admin, Access::Write, Access::Read]
            .into_iter()
            .find_map(|access| {
                let who = self
                    .list(access)?
                    .iter()
                    .find(|who| who.includes(name, groups))?;
                Some((access, who))
            })
    }

    /// The most that `name` may do.
    pub fn highest(&self, name: &str, groups: &Groups) -> Option<Access> {
        self.grant(name, groups).map(|(access, _)| access)
    }

    /// The groups that the lists name.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        [&self.read, &self.write, &self.admin]
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|who| match who {
                Who::Group(group) => Some(group.as_str()),
                _ => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(read: Option<&str>, write: Option<&str>, admin: Option<&str>) -> Rules {
        let list = |line: Option<&str>| line.map(|line| Who::parse_line(line).collect());
        Rules {
            read: list(read),
            write: list(write),
            admin: list(admin),
        }
    }

    fn groups() -> Groups {
        Groups::from([("devs".to_owned(), vec!["bob".to_owned(), "cy".to_owned()])])
    }

    #[test]
    fn each_right_includes_the_lower_ones_and_nothing_set_is_nobody() {
        let usual = rules(Some("*"), Some("@devs"), Some("alice"));
        for (rules, name, expected) in [
            (&usual, "alice", Some(Access::Admin)),
            (&usual, "bob", Some(Access::Write)),
            (&usual, "eve", Some(Access::Read)),
            (&usual, "devs", Some(Access::Read)),
            (&rules(None, Some("bob"), None), "bob", Some(Access::Write)),
            (&rules(None, Some("bob"), None), "eve", None),
            (&rules(None, None, None), "alice", None),
            (&rules(Some(""), None, None), "alice", None),
            (&rules(Some("@none"), None, None), "alice", None),
            (&rules(Some("Alice"), None, None), "alice", None),
            (
                &rules(Some("a, b  alice"), None, None),
                "alice",
                Some(Access::Read),
            ),
        ] {
            assert_eq!(rules.highest(name, &groups()), expected, "{name} {rules:?}");
        }
    }

    #[test]
    fn a_repositorys_key_counts_instead_of_the_same_one_alone() {
        let site = rules(Some("*"), Some("@devs"), Some("alice"));
        let own = rules(None, Some("dan"), Some("")).or(&site);
        for (name, expected) in [
            ("dan", Some(Access::Write)),
            ("bob", Some(Access::Read)),
            ("alice", Some(Access::Read)),
        ] {
            assert_eq!(own.highest(name, &groups()), expected, "{name}");
        }
    }
}
