//! What of the environment a git command may inherit.
//!
//! sshd lets a client set variables where the admin said `AcceptEnv`, usually
//! for the language alone. Where it accepts more, none of it may steer git, the
//! hooks or their interpreters.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// What every variable that git, the dynamic linker, a shell's exported
/// functions and the places of git's own configuration begin with. With `GIT_`
/// goes whatever a client sent as `GIT_CLAIM_…`.
const PREFIXES: [&str; 9] = [
    "GIT_", "LD_", "XDG_", "BASH_", "PERL", "PYTHON", "RUBY", "NODE_", "LESS",
];

/// Others that make a shell, an interpreter or the C library do more than they
/// were asked to.
const NAMES: [&str; 16] = [
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "IFS",
    "CDPATH",
    "GLOBIGNORE",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "SSH_ASKPASS",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "JAVA_TOOL_OPTIONS",
];

/// Whether a git command must not see the variable `name`.
pub fn is_dropped(name: &OsStr) -> bool {
    let name = name.as_bytes();
    PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix.as_bytes()))
        || NAMES.iter().any(|dropped| name == dropped.as_bytes())
}

/// The value of `GIT_PROTOCOL` that may pass on: colon-separated words of the
/// form that git defines, `version=2`.
pub fn git_protocol(value: &OsStr) -> Option<&str> {
    let value = value.to_str()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'=' | b':' | b'.' | b'-' | b'_');
    (!value.is_empty() && value.len() <= 256 && value.bytes().all(plain)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_git_is_dropped() {
        for name in [
            "GIT_DIR",
            "GIT_CONFIG_COUNT",
            "GIT_CLAIM_PRINCIPAL",
            "GIT_CLAIM_KEY",
            "GIT_EXEC_PATH",
            "LD_PRELOAD",
            "XDG_CONFIG_HOME",
            "BASH_ENV",
            "BASH_FUNC_git%%",
            "ENV",
            "PERL5LIB",
        ] {
            assert!(is_dropped(OsStr::new(name)), "{name}");
        }
        for name in ["HOME", "PATH", "LANG", "LC_ALL", "SSH_CONNECTION", "USER"] {
            assert!(!is_dropped(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_protocol_passes_in_its_own_form_alone() {
        for (value, passes) in [
            ("version=2", true),
            ("version=1:foo", true),
            ("", false),
            ("version=2\nx", false),
            ("$(id)", false),
            (&"a".repeat(257), false),
        ] {
            assert_eq!(git_protocol(OsStr::new(value)).is_some(), passes, "{value}");
        }
    }
}
