//! Rights at a forge where every question costs a process or a request: asked
//! once, for the highest right that a request can need, and remembered.

use git_claim_api::access::Access;
use git_claim_api::verb::Request;

/// The highest right that `request` can make use of.
pub fn most_needed(request: &Request) -> Access {
    match request {
        Request::List { .. }
        | Request::Show { .. }
        | Request::Log { .. }
        | Request::Verify { .. } => Access::Read,
        Request::Acquire { take, .. } | Request::Next { take, .. } if take.take_over.is_some() => {
            Access::Admin
        }
        Request::Release { force: Some(_), .. } => Access::Admin,
        Request::Acquire { .. }
        | Request::Next { .. }
        | Request::Renew { .. }
        | Request::Release { .. }
        | Request::Recover { .. }
        | Request::Serve { .. } => Access::Write,
        // Tells what one may do at most.
        Request::Whoami { .. } => Access::Admin,
        // The host's own, which no right of a user counts for.
        Request::Rename { .. }
        | Request::Backup { .. }
        | Request::Look
        | Request::Init
        | Request::Migrate { .. }
        | Request::Fence { .. }
        | Request::Settle { .. } => Access::Admin,
    }
}

/// What is known of one principal's rights in one repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    granted: Option<Access>,
    denied: Option<Access>,
}

impl Rights {
    /// Asks for `from`, and while that is denied for the next lower right;
    /// gives the highest that is granted.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn find<E>(
        &mut self,
        from: Access,
        mut ask: impl FnMut(Access) -> Result<bool, E>,
    ) -> Result<Option<Access>, E> {
        for access in [Access::Admin, Access::Write, Access::Read] {
            if access <= from && self.may(access, &mut ask)? {
                break;
            }
        }
        Ok(self.granted)
    }

    /// Whether `access` is granted; asks only what does not follow from the
    /// answers so far.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn may<E>(
        &mut self,
        access: Access,
        ask: impl FnOnce(Access) -> Result<bool, E>,
    ) -> Result<bool, E> {
        if self.granted.is_some_and(|granted| access <= granted) {
            return Ok(true);
        }
        if self.denied.is_some_and(|denied| access >= denied) {
            return Ok(false);
        }
        let answer = ask(access)?;
        let known = if answer {
            &mut self.granted
        } else {
            &mut self.denied
        };
        *known = Some(access);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The rights of somebody who has `highest`, and the questions it took.
    fn found(highest: Option<Access>, from: Access) -> (Option<Access>, Vec<Access>, Rights) {
        let mut asked = Vec::new();
        let mut rights = Rights::default();
        let granted = rights
            .find(from, |access| {
                asked.push(access);
                Ok::<_, Infallible>(highest.is_some_and(|highest| access <= highest))
            })
            .unwrap();
        (granted, asked, rights)
    }

    #[test]
    fn the_usual_request_takes_one_question() {
        use Access::{Admin, Read, Write};
        for (highest, from, granted, questions) in [
            (Some(Write), Write, Some(Write), &[Write][..]),
            (Some(Admin), Write, Some(Write), &[Write]),
            (Some(Read), Read, Some(Read), &[Read]),
            (Some(Admin), Admin, Some(Admin), &[Admin]),
            (Some(Read), Write, Some(Read), &[Write, Read]),
            (None, Read, None, &[Read]),
            (None, Admin, None, &[Admin, Write, Read]),
        ] {
            let (got, asked, _) = found(highest, from);
            assert_eq!((got, &asked[..]), (granted, questions), "{highest:?}");
        }
    }

    #[test]
    fn what_follows_is_not_asked_again() {
        use Access::{Admin, Read, Write};
        let never = |access| -> Result<bool, Access> { Err(access) };
        let (_, _, mut rights) = found(Some(Write), Write);
        assert_eq!(rights.may(Read, never), Ok(true));
        assert_eq!(rights.may(Admin, never), Err(Admin));
        let (_, _, mut rights) = found(Some(Read), Write);
        assert_eq!(rights.may(Admin, never), Ok(false));
        assert_eq!(rights.may(Write, never), Ok(false));
        assert_eq!(rights.may(Read, never), Ok(true));
    }

    #[test]
    fn eviction_and_whoami_need_to_know_about_admin() {
        for (command, access) in [
            ("list r", Access::Read),
            ("show r 1", Access::Read),
            ("log r", Access::Read),
            ("verify r 1 --token 1", Access::Read),
            ("acquire r 1", Access::Write),
            ("next r", Access::Write),
            ("renew r 1 --ttl 9", Access::Write),
            ("release r 1", Access::Write),
            ("acquire r 1 --take-over --reason x", Access::Admin),
            ("release r 1 --force --reason x", Access::Admin),
            ("whoami r", Access::Admin),
        ] {
            let request = Request::parse(format!("collab-lease {command}").as_bytes()).unwrap();
            assert_eq!(most_needed(&request), access, "{command}");
        }
    }
}
