//! Exit codes: one table for the programs, the man pages and the tests.

/// How a command ended. The numbers are fixed by the protocol; 126 and above
/// belong to shells and SSH and are never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    Error = 1,
    Usage = 2,
    Nothing = 3,
    Conflict = 4,
    NotNow = 6,
    NoVerb = 7,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Exit; 7] = [
        Exit::Done,
        Exit::Error,
        Exit::Usage,
        Exit::Nothing,
        Exit::Conflict,
        Exit::NotNow,
        Exit::NoVerb,
    ];

    /// The number that the process exits with.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The exit that a server's number stands for, if it is one of ours.
    pub fn from_code(code: i32) -> Option<Exit> {
        Exit::ALL
            .into_iter()
            .find(|exit| i32::from(exit.code()) == code)
    }

    /// What the code means, as the man pages say it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done; repeating a command that had already succeeded counts as done",
            Exit::Error => {
                "error: bad words, an unknown repository or one that you may not use, an unknown or closed issue"
            }
            Exit::Usage => "the command line was not understood; nobody was asked",
            Exit::Nothing => "nothing left to take",
            Exit::Conflict => "somebody else holds the claim, or you do not hold it",
            Exit::NotNow => {
                "the server could not be asked, or could not answer now; you hold nothing new, and trying again is safe"
            }
            Exit::NoVerb => "the server answers, but does not speak collab-lease",
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn codes_are_those_of_the_protocol() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 6, 7]);
        for exit in Exit::ALL {
            assert_eq!(Exit::from_code(exit.code().into()), Some(exit));
        }
        assert_eq!(Exit::from_code(5), None);
        assert_eq!(Exit::from_code(255), None);
    }
}
