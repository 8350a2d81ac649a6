//! The command lines of the three programs. One definition feeds the parser,
//! the help, the man pages and the completions.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use git_claim_api::duration::parse_ttl;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{Invalid, IssueId, Session, Ttl};
use git_claim_api::text::escape;

use crate::bound::quote::quote;
use crate::commands::{
    check, claim, claims, completions, help, inspect, install_hook, log, recover, renew, run,
    start, unclaim, whoami,
};
use crate::completion::offer::Offer;
use crate::error::Failure;
use crate::manual;
use crate::negation::with_negations;
use crate::output::json;
use crate::word_order;

/// Which of the programs runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Claim,
    Claims,
    Unclaim,
}

impl Program {
    /// All of them, in the order of their names.
    pub const ALL: [Program; 3] = [Program::Claim, Program::Claims, Program::Unclaim];

    /// The file's name, and the man page's.
    pub const fn name(self) -> &'static str {
        match self {
            Program::Claim => "git-claim",
            Program::Claims => "git-claims",
            Program::Unclaim => "git-unclaim",
        }
    }
}

/// What every command takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The remote whose server is asked
    ///
    /// Without it: claim.remote, the current branch's remote, the only remote,
    /// or `origin`, the first of these that there is.
    #[arg(short, long, value_name = "NAME", add = Offer::Remote, global = true)]
    pub remote: Option<String>,

    /// The session to act as, instead of this worktree's own
    ///
    /// A session is one working context: two sessions of one person are two
    /// holders. GIT_CLAIM_SESSION sets it for many calls.
    #[arg(long, value_name = "SESSION", value_hint = ValueHint::Other, global = true)]
    pub session: Option<Session>,

    /// Print the server's reply as one line of JSON; errors are JSON too
    #[arg(long, global = true)]
    pub json: bool,

    /// Say nothing where all went well, but what was asked to be shown
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Tell on stderr who is asked what, and over which connection
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// An issue's id as people type it: `42`, `#42`, or the first characters of a
/// long one.
pub fn issue_id(text: &str) -> Result<IssueId, Invalid> {
    let id = text.strip_prefix('#').filter(|id| !id.is_empty());
    id.unwrap_or(text).parse()
}

/// A time to live as people type it.
pub fn ttl(text: &str) -> Result<Ttl, Invalid> {
    parse_ttl(text)
}

/// How programs work with claims, in `git claim -h`.
const WORKER: &str = "\
For programs that work on their own:
  Exit 0: it is yours. 3: nothing is left. 4: it is not yours, leave it alone, take another.
  6: nobody could be asked: you hold nothing new; ask again later, unless `git claim whoami` fails too.
  1, 2, 7: asking again won't help.
  Work under `git claim run --next -- <command>`: it renews, and releases at the end.
  Exit 105: the claim was lost and the command ended; what it did is not yours to publish.
  Never use --take-over on your own account.";

/// Claim an issue, so that nobody else works on it
///
/// Takes an issue for you, on the git server itself: nobody else gets it until
/// you release it, or until the time that you asked for is over. The server is
/// the one that you push to, reached with the key that you push with.
#[derive(Debug, Parser)]
#[command(
    name = "git-claim",
    bin_name = "git claim",
    override_usage = "git claim [OPTIONS] <ID>\n       git claim [OPTIONS] --next\n       git claim [OPTIONS] <SUBCOMMAND>",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = WORKER,
    subcommand_help_heading = "Subcommands",
    subcommand_value_name = "SUBCOMMAND"
)]
struct ClaimLine {
    #[command(subcommand)]
    subcommand: Option<ClaimSubcommand>,
    #[command(flatten)]
    claim: claim::Args,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum ClaimSubcommand {
    #[command(visible_alias = "heartbeat")]
    Renew(renew::Args),
    Start(start::Args),
    Check(check::Args),
    Inspect(inspect::Args),
    Recover(recover::Args),
    InstallHook(install_hook::Args),
    Run(run::Args),
    Log(log::Args),
    Whoami(whoami::Args),
    Help(help::Args),
    Completions(completions::Args),
}

/// List who works on what
///
/// Shows the claims that live now, the oldest first. A `*` marks this
/// worktree's own, a `+` those that you have elsewhere; among those that have
/// ended, a `+` marks all that you had.
#[derive(Debug, Parser)]
#[command(
    name = "git-claims",
    bin_name = "git claims",
    override_usage = "git claims [OPTIONS]",
    version
)]
struct ClaimsLine {
    #[command(flatten)]
    claims: claims::Args,
    #[command(flatten)]
    global: Global,
}

/// Give an issue back
///
/// Releases your claim, so that others can take the issue. Repeating it does no
/// harm: what nobody holds stays free.
///
/// Several issues are released over one connection, each for itself. The exit
/// code is the highest of theirs; with --json there is one object a line for
/// each, in the order given, errors among them.
#[derive(Debug, Parser)]
#[command(
    name = "git-unclaim",
    bin_name = "git unclaim",
    override_usage = "git unclaim [OPTIONS] [ID]...",
    version
)]
struct UnclaimLine {
    #[command(flatten)]
    unclaim: unclaim::Args,
    #[command(flatten)]
    global: Global,
}

/// A command with its arguments.
#[derive(Debug)]
pub enum Command {
    Claim(claim::Args),
    Renew(renew::Args),
    Start(start::Args),
    Check(check::Args),
    Inspect(inspect::Args),
    Recover(recover::Args),
    InstallHook(install_hook::Args),
    Run(run::Args),
    Log(log::Args),
    Whoami(whoami::Args),
    Help(help::Args),
    Completions(completions::Args),
    Claims(claims::Args),
    Unclaim(unclaim::Args),
}

impl Command {
    /// Whether it changes nothing anywhere.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Command::Claims(_)
                | Command::Log(_)
                | Command::Whoami(_)
                | Command::Inspect(_)
                | Command::Check(_)
        )
    }

    /// Whether it goes on until somebody ends it.
    pub fn is_endless(&self) -> bool {
        matches!(self, Command::Claims(args) if args.watch)
    }
}

/// One call of a program, parsed.
#[derive(Debug)]
pub struct Invocation {
    pub global: Global,
    pub command: Command,
}

/// The definition of a program's command line.
pub fn command(program: Program) -> clap::Command {
    match program {
        Program::Claim => ClaimLine::command(),
        Program::Claims => ClaimsLine::command(),
        Program::Unclaim => UnclaimLine::command(),
    }
}

/// A command line that is not run: it asked for help, or was not understood.
#[derive(Debug)]
pub struct Refused {
    why: Why,
    json: bool,
}

#[derive(Debug)]
enum Why {
    Shown(clap::Error),
    /// `--help`: a page of the manual, or clap's text where it is not there.
    Manual(String, clap::Error),
    Wrong(Failure, Option<String>),
}

impl Refused {
    /// Says so; help and versions go to stdout and are no failure.
    pub fn report(self) -> ExitCode {
        match self.why {
            Why::Manual(page, _) if manual::show(&page) => Exit::Done.into(),
            Why::Shown(text) | Why::Manual(_, text) => {
                // A reader that has gone away is no failure of ours.
                let _ = text.print();
                Exit::Done.into()
            }
            Why::Wrong(failure, _) if self.json => {
                to_stderr(&json::failure(&failure).to_string());
                failure.kind.code().into()
            }
            Why::Wrong(failure, usage) => {
                to_stderr(&format!("error: {}", failure.message));
                if let Some(hint) = &failure.hint {
                    to_stderr(&format!("hint: {hint}"));
                }
                if let Some(usage) = usage {
                    to_stderr(&usage);
                }
                failure.kind.code().into()
            }
        }
    }
}

/// Nobody may be there to read it, which changes no exit code.
fn to_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Reads a command line, the program's name first.
pub fn parse(program: Program, words: &[OsString]) -> Result<Invocation, Refused> {
    let mut definition = with_negations(command(program));
    let arranged = match program {
        Program::Claim => word_order::arrange(&definition, words),
        Program::Claims | Program::Unclaim => Ok(words.to_vec()),
    };
    let has = |option: &str| {
        let words = arranged.as_deref().unwrap_or(words).iter();
        words
            .take_while(|word| *word != "--")
            .any(|word| word == option)
    };
    let json = has("--json");
    let wants_manual = has("--help");
    let words = match arranged {
        Ok(words) => words,
        Err(failure) => {
            let why = Why::Wrong(failure, None);
            return Err(Refused { why, json });
        }
    };
    let first = words.get(1).and_then(|word| word.to_str());
    let subcommand = first.and_then(|word| definition.find_subcommand(word));
    let subcommand = subcommand.map(|subcommand| subcommand.get_name().to_owned());
    read(program, &mut definition, &words).map_err(|error| {
        let subcommand = subcommand.as_deref();
        let is_help = error.kind() == clap::error::ErrorKind::DisplayHelp;
        let why = match explained(program, subcommand, &words, error) {
            Why::Shown(text) if is_help && wants_manual => {
                Why::Manual(manual::page(program, subcommand), text)
            }
            // Its other exit codes are those of the command that it runs.
            Why::Wrong(failure, usage) if subcommand == Some(word_order::RUN) => {
                Why::Wrong(failure.of_run(), usage)
            }
            why => why,
        };
        Refused { why, json }
    })
}

fn read(
    program: Program,
    definition: &mut clap::Command,
    words: &[OsString],
) -> Result<Invocation, clap::Error> {
    let matches = definition.try_get_matches_from_mut(words)?;
    Ok(match program {
        Program::Claim => {
            let line = ClaimLine::from_arg_matches(&matches)?;
            let command = match line.subcommand {
                None => Command::Claim(line.claim),
                Some(ClaimSubcommand::Renew(args)) => Command::Renew(args),
                Some(ClaimSubcommand::Start(args)) => Command::Start(args),
                Some(ClaimSubcommand::Check(args)) => Command::Check(args),
                Some(ClaimSubcommand::Inspect(args)) => Command::Inspect(args),
                Some(ClaimSubcommand::Recover(args)) => Command::Recover(args),
                Some(ClaimSubcommand::InstallHook(args)) => Command::InstallHook(args),
                Some(ClaimSubcommand::Run(args)) => Command::Run(args),
                Some(ClaimSubcommand::Log(args)) => Command::Log(args),
                Some(ClaimSubcommand::Whoami(args)) => Command::Whoami(args),
                Some(ClaimSubcommand::Help(args)) => Command::Help(args),
                Some(ClaimSubcommand::Completions(args)) => Command::Completions(args),
            };
            Invocation {
                global: line.global,
                command,
            }
        }
        Program::Claims => {
            let line = ClaimsLine::from_arg_matches(&matches)?;
            Invocation {
                global: line.global,
                command: Command::Claims(line.claims),
            }
        }
        Program::Unclaim => {
            let line = UnclaimLine::from_arg_matches(&matches)?;
            Invocation {
                global: line.global,
                command: Command::Unclaim(line.unclaim),
            }
        }
    })
}

/// clap's error in the form of all errors, with nothing unsafe in it.
fn explained(
    program: Program,
    subcommand: Option<&str>,
    words: &[OsString],
    error: clap::Error,
) -> Why {
    use clap::error::ErrorKind;
    if !error.use_stderr() {
        return Why::Shown(error);
    }
    let rendered = error.render().to_string();
    let mut paragraphs = rendered.trim_end().split("\n\n");
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let (tips, rest): (Vec<String>, Vec<String>) = paragraphs
        .flat_map(str::lines)
        .filter(|line| !line.starts_with("For more information"))
        .map(escape)
        .partition(|line| line.trim_start().starts_with(TIP));
    let takes_id = rest.iter().any(|line| line.contains("ID"));
    let mut failure = match one_too_many(&error) {
        Some(word) if takes_id => {
            let is_claim = program == Program::Claim && subcommand.is_none();
            one_id(&word, words, is_claim)
        }
        Some(_) if program == Program::Claims => Failure::usage(escape(&message))
            .hint("`git claim log <id>` shows who holds an issue, and who did"),
        _ if program == Program::Unclaim
            && ["--all", "--mine"]
                .iter()
                .any(|option| is_about(&error, option)) =>
        {
            Failure::usage(escape(&message))
                .hint("`git claims --mine` lists yours; `git unclaim <id> <id>` takes several")
        }
        _ if error.kind() == ErrorKind::MissingRequiredArgument && is_about(&error, "--reason") => {
            without_reason(program, words)
        }
        _ if is_about(&error, "--expected-head") => {
            Failure::usage(escape(&message)).hint(WHERE_BRANCH_IS)
        }
        _ => Failure::usage(wrong_value(&error).unwrap_or_else(|| escape(&message))),
    };
    if failure.hint.is_none() {
        failure.hint = option_elsewhere(program, &error).or_else(|| {
            tips.iter()
                .filter_map(|tip| tip.trim_start().strip_prefix(TIP))
                // No id, and no other value of ours, begins with `-`.
                .find(|tip| !tip.starts_with("to pass "))
                .map(str::to_owned)
        });
    }
    let shell_ate_it = error.kind() == ErrorKind::MissingRequiredArgument
        && program == Program::Claim
        && message.contains("<ID");
    if shell_ate_it {
        failure = match subcommand {
            Some(word_order::RUN) => {
                Failure::usage("there is no command to run").hint(word_order::RUN_EXAMPLES)
            }
            Some("recover") => failure.hint(WHERE_BRANCH_IS),
            Some("start") => failure.hint(format!(
                "`git claim start <id>` names one ({NUMBER_SIGN}); `git claim start --next` takes \
                 the first open issue"
            )),
            Some(_) => failure.hint(NUMBER_SIGN),
            None => failure.hint(format!(
                "`git claim <id>` names one ({NUMBER_SIGN}); `git claim --next` takes the first \
                 open issue, and `git claim -h` shows more"
            )),
        };
    }
    // A hint is more to the point.
    let usage = (failure.hint.is_none() && !rest.is_empty()).then(|| rest.join("\n"));
    Why::Wrong(failure, usage)
}

/// A claim is to be ended for no reason: all that such a call may need, at once.
fn without_reason(program: Program, words: &[OsString]) -> Failure {
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let mut line: Vec<String> = words.map(quote).collect();
    let has_token = line.iter().any(|word| word.starts_with("--expected-token"));
    let end = line.iter().position(|word| word == "--");
    line.insert(end.unwrap_or(line.len()), "--reason '<why>'".to_owned());
    line.insert(0, program.name().replacen('-', " ", 1));
    let line = escape(&line.join(" "));
    Failure::usage("a reason is missing, for whoever loses the claim: --reason <TEXT>").hint(
        match has_token {
            true => format!("`{line}`"),
            false => format!(
                "`{line}`; of another name's claim also `--expected-token <n>`, the token in `git claim log <id>`"
            ),
        },
    )
}

/// Why a value was refused: in our words, which name it, behind the option's
/// name.
fn wrong_value(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let why = escape(&std::error::Error::source(error)?.to_string());
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    Some(match argument.split_once(' ') {
        Some((option, _)) => format!("{option}: {why}"),
        None => why,
    })
}

/// How clap begins what everything else here calls a hint.
const TIP: &str = "tip: ";

/// Whether it is this argument that is missing or has no place there.
fn is_about(error: &clap::Error, argument: &str) -> bool {
    use clap::error::{ContextKind, ContextValue};
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(found)) => found == argument,
        Some(ContextValue::Strings(found)) => found.iter().any(|found| found.starts_with(argument)),
        _ => false,
    }
}

/// The word behind an id that has no place there.
fn one_too_many(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let kind = match error.kind() {
        ErrorKind::ArgumentConflict => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    match error.get(kind) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => Some(word.clone()),
        _ => None,
    }
}

/// What a word too many was meant for.
fn one_id(word: &str, words: &[OsString], is_claim: bool) -> Failure {
    let definition = ClaimLine::command();
    let shown = escape(word);
    let too_many = Failure::usage(format!(
        "only one issue id is taken, and '{shown}' is one word too many"
    ));
    if definition.find_subcommand(word).is_some() {
        return too_many.hint(format!(
            "a subcommand comes before the id: `git claim {shown} <id>`"
        ));
    }
    if let Some(duration) = duration_of_wait(word, words) {
        return too_many.hint(format!("write `--wait={duration}`"));
    }
    match word_order::plain_word(&definition, words) {
        Some(first) if is_claim && !first.contains(|c: char| c.is_ascii_digit()) => {
            word_order::no_subcommand(first).hint("`git claim --help` lists what there is")
        }
        _ => too_many.hint("each issue needs a call of its own"),
    }
}

/// The duration that stands behind `--wait` in a word of its own. A number
/// without a unit may be an id, unless it's the word that has no place.
fn duration_of_wait<'a>(too_many: &str, words: &'a [OsString]) -> Option<&'a str> {
    let wait = words.iter().position(|word| word == "--wait")?;
    let next = words.get(wait + 1)?.to_str()?;
    let is_meant = next == too_many || next.ends_with(|c: char| c.is_ascii_alphabetic());
    (is_meant && ttl(next).is_ok()).then_some(next)
}

/// Options that people give to the wrong program, and where they belong.
const ELSEWHERE: &[(&str, &str)] = &[
    ("--list", "`git claims` lists what is claimed"),
    ("--mine", "`git claims --mine` lists yours"),
    ("--holder", "`git claims --holder <name>` lists theirs"),
    ("--ended", "`git claims --ended` lists what has ended"),
    ("--ready", "`git claims --ready` lists what is free"),
];

fn option_elsewhere(program: Program, error: &clap::Error) -> Option<String> {
    if program == Program::Claims || error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    let (_, hint) = ELSEWHERE
        .iter()
        .find(|(option, _)| is_about(error, option))?;
    Some((*hint).to_owned())
}

/// Why an id that was typed may be missing.
const NUMBER_SIGN: &str = "a shell takes #43 for a comment: write 43 or '#43'";

/// What tells the rest that `recover` has to be told.
const WHERE_BRANCH_IS: &str = "`git claim inspect <id>` shows where the branch is";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(program: Program, line: &str) -> Result<Invocation, u8> {
        let words: Vec<OsString> = std::iter::once(program.name())
            .chain(line.split_whitespace())
            .map(OsString::from)
            .collect();
        parse(program, &words).map_err(|refused| match refused.why {
            Why::Shown(_) | Why::Manual(..) => 0,
            Why::Wrong(failure, _) => failure.kind.code(),
        })
    }

    #[test]
    fn the_definitions_are_sound() {
        for program in Program::ALL {
            command(program).debug_assert();
        }
    }

    #[test]
    fn help_in_full_is_a_page_of_the_manual() {
        for (program, line, page) in [
            (Program::Claim, "--help", Some("git-claim")),
            (Program::Claim, "run --help", Some("git-claim-run")),
            (
                Program::Claim,
                "--json run 42 --help",
                Some("git-claim-run"),
            ),
            (Program::Claim, "heartbeat --help", Some("git-claim-renew")),
            (Program::Claim, "renew -h", None),
            (Program::Claim, "--version --help", None),
            (Program::Claims, "--mine --help", Some("git-claims")),
            (Program::Unclaim, "--help", Some("git-unclaim")),
        ] {
            let words: Vec<OsString> = std::iter::once(program.name())
                .chain(line.split(' '))
                .map(OsString::from)
                .collect();
            let shown = match parse(program, &words).unwrap_err().why {
                Why::Manual(page, _) => Some(page),
                Why::Shown(_) => None,
                Why::Wrong(failure, _) => panic!("{line}: {failure:?}"),
            };
            assert_eq!(shown.as_deref(), page, "{line}");
        }
    }

    #[test]
    fn usage_errors_have_hints_as_all_errors_have() {
        for (program, line, message, hint) in [
            (
                Program::Claim,
                "1 2",
                "one issue id is taken, and '2'",
                "a call of its own",
            ),
            (
                Program::Claim,
                "1 2 3",
                "one issue id is taken, and '2'",
                "a call of its own",
            ),
            (
                Program::Claim,
                "1 renew",
                "and 'renew' is one",
                "`git claim renew <id>`",
            ),
            (
                Program::Claim,
                "log 1 2",
                "one issue id is taken, and '2'",
                "a call of its own",
            ),
            (Program::Claim, "1 --wait 10m", "and '10m'", "`--wait=10m`"),
            (Program::Claim, "1 --wait 300", "and '300'", "`--wait=300`"),
            (Program::Claim, "--wait 10m 1", "and '1'", "`--wait=10m`"),
            (Program::Claim, "--wait 1 2", "and '2'", "a call of its own"),
            (
                Program::Claim,
                "force 42",
                "'force' is no subcommand",
                "`git claim --help`",
            ),
            (
                Program::Claim,
                "-t 2h fix-it 42",
                "'fix-it' is no subcommand",
                "`git claim --help`",
            ),
            (Program::Claim, "-- a b", "and 'b'", "a call of its own"),
            (Program::Claim, "log a b", "and 'b'", "a call of its own"),
            (
                Program::Claim,
                "42 --mine",
                "argument '--mine'",
                "`git claims --mine`",
            ),
            (
                Program::Claim,
                "--list",
                "argument '--list'",
                "`git claims`",
            ),
            (
                Program::Claim,
                "log 42 --ended",
                "argument '--ended'",
                "`git claims --ended`",
            ),
            (
                Program::Unclaim,
                "--holder=ann",
                "argument '--holder'",
                "`git claims --holder <name>`",
            ),
            (
                Program::Unclaim,
                "--mine",
                "argument '--mine'",
                "`git claims --mine`",
            ),
            (
                Program::Claim,
                "recover",
                "--expected-head <OID>",
                "`git claim inspect <id>`",
            ),
            (Program::Claim, "start", "<ID", "`git claim start --next`"),
            (
                Program::Claim,
                "42 --jsn",
                "unexpected argument '--jsn'",
                "'--json'",
            ),
            (
                Program::Unclaim,
                "--all",
                "unexpected argument '--all'",
                "`git claims --mine`",
            ),
            (
                Program::Claim,
                "recover 42 --dry-run",
                "--expected-head <OID>",
                "`git claim inspect <id>`",
            ),
            (
                Program::Unclaim,
                "--forc 1",
                "unexpected argument '--forc'",
                "'--force'",
            ),
        ] {
            let words = [program.name()].into_iter().chain(line.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let Err(Refused {
                why: Why::Wrong(failure, usage),
                ..
            }) = parse(program, &words)
            else {
                panic!("{line}");
            };
            assert!(failure.message.contains(message), "{line}: {failure:?}");
            let said = failure.hint.unwrap();
            assert!(
                said.contains(hint) && !said.contains("tip:"),
                "{line}: {said}"
            );
            assert_eq!(usage, None, "{line}");
        }
        let nowhere = parsed(Program::Claims, "42");
        assert_eq!(nowhere.unwrap_err(), 2);
    }

    #[test]
    fn all_that_is_missing_to_end_a_claim_is_told_at_once() {
        let told = |program: Program, line: &str| {
            let words: Vec<OsString> = std::iter::once(program.name())
                .chain(line.split_whitespace())
                .map(OsString::from)
                .collect();
            match parse(program, &words).unwrap_err().why {
                Why::Wrong(failure, _) => failure.hint.unwrap(),
                _ => panic!("{line}"),
            }
        };
        let hint = told(Program::Claim, "--take-over 42");
        assert!(
            hint.starts_with("`git claim --take-over 42 --reason '<why>'`; "),
            "{hint}"
        );
        assert!(hint.contains("`--expected-token <n>`"), "{hint}");
        let hint = told(Program::Claim, "--take-over -- 42");
        assert!(
            hint.starts_with("`git claim --take-over --reason '<why>' -- 42`; "),
            "{hint}"
        );
        let hint = told(Program::Unclaim, "42 --force --expected-token 3");
        assert_eq!(
            hint,
            "`git unclaim 42 --force --expected-token 3 --reason '<why>'`"
        );
    }

    #[test]
    fn an_option_that_is_nowhere_has_no_hint_that_cannot_work() {
        for (program, line) in [
            (Program::Claim, "42 --force"),
            (Program::Claim, "42 --steal"),
            (Program::Claim, "42 -n"),
            (Program::Claim, "run -x 42 make"),
            (Program::Claims, "-n"),
        ] {
            let words = [program.name()].into_iter().chain(line.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let Err(Refused {
                why: Why::Wrong(failure, usage),
                ..
            }) = parse(program, &words)
            else {
                panic!("{line}");
            };
            assert!(usage.unwrap().contains("Usage: git "), "{line}");
            assert!(
                failure.message.contains("unexpected argument"),
                "{failure:?}"
            );
            assert_eq!(failure.hint, None, "{line}");
        }
    }

    #[test]
    fn a_refused_id_is_named_as_it_was_typed() {
        for (typed, named) in [
            ("#", "'#' is not"),
            ("", "'' is not"),
            ("a..b", "'a..b' is"),
        ] {
            let refused = issue_id(typed).unwrap_err().to_string();
            assert!(refused.starts_with(named), "{refused}");
        }
    }

    #[test]
    fn ids_are_taken_with_a_number_sign() {
        for line in [
            "42",
            "#42",
            "-- 42",
            "--json 42",
            "-t 2h 42",
            "42 -t2h -q",
            "--wait 42",
            "42 --wait=5m",
        ] {
            let Ok(Invocation {
                command: Command::Claim(args),
                ..
            }) = parsed(Program::Claim, line)
            else {
                panic!("{line}");
            };
            assert_eq!(args.id.unwrap().as_str(), "42", "{line}");
        }
    }

    #[test]
    fn commands_that_only_look_are_known() {
        for (program, line, only_looks) in [
            (Program::Claims, "--mine", true),
            (Program::Claim, "log", true),
            (Program::Claim, "whoami", true),
            (Program::Claim, "inspect 42", true),
            (Program::Claim, "check", true),
            (Program::Claim, "42", false),
            (Program::Claim, "renew 42", false),
            (Program::Unclaim, "42", false),
        ] {
            let command = parsed(program, line).unwrap().command;
            assert_eq!(command.only_looks(), only_looks, "{line}");
        }
    }

    #[test]
    fn renew_and_unclaim_take_several_ids() {
        for (line, expected) in [
            ("renew 1 #2 -t 2h 3", Some(3)),
            ("heartbeat 1", Some(1)),
            ("renew", Some(0)),
            ("renew 1 a..b 3", None),
        ] {
            let ids = match parsed(Program::Claim, line) {
                Ok(Invocation {
                    command: Command::Renew(args),
                    ..
                }) => Some(args.ids.len()),
                _ => None,
            };
            assert_eq!(ids, expected, "{line}");
        }
        let Ok(Invocation {
            command: Command::Unclaim(args),
            ..
        }) = parsed(Program::Unclaim, "#1 2 --force --reason x")
        else {
            panic!("not understood");
        };
        assert_eq!(args.ids.len(), 2);
    }

    #[test]
    fn subcommands_are_found_wherever_they_stand() {
        for line in [
            "renew 42",
            "--json renew 42",
            "-r up renew 42",
            "renew --json -t 2h 42",
            "heartbeat 42",
            "-t 2h renew 42",
            "-qt 2h renew 42",
        ] {
            assert!(
                matches!(
                    parsed(Program::Claim, line),
                    Ok(Invocation {
                        command: Command::Renew(_),
                        ..
                    })
                ),
                "{line}"
            );
        }
        let invocation = parsed(Program::Claim, "--json -r up log").unwrap();
        assert!(invocation.global.json);
        assert_eq!(invocation.global.remote.as_deref(), Some("up"));
    }

    #[test]
    fn the_words_of_a_command_are_its_own() {
        let run = |line: &str| match parsed(Program::Claim, line) {
            Ok(Invocation {
                command: Command::Run(args),
                global,
            }) => (args, global),
            other => panic!("{line}: {other:?}"),
        };
        for (line, first, rest) in [
            (
                "run 42 make -j4 --json",
                "42",
                &["make", "-j4", "--json"][..],
            ),
            ("run 42 -- make -- --next", "42", &["make", "--", "--next"]),
            ("run -t 5m 42 -- -q", "42", &["-q"]),
            ("run 42 -t 5m make", "42", &["make"]),
            ("run --next make -t", "make", &["-t"]),
            ("run -t 5m --next -- make --keep", "make", &["--keep"]),
        ] {
            let (args, global) = run(line);
            assert_eq!(args.first, first, "{line}");
            assert_eq!(args.rest, rest, "{line}");
            assert!(!global.json && !args.keep, "{line}");
            assert_eq!(
                args.next,
                line.contains("--next ") && first == "make",
                "{line}"
            );
        }
        assert!(run("--json run 42 make").1.json);
        for line in ["run", "run --next", "run -x 42 make", "run 42 -t 0 make"] {
            assert_eq!(parsed(Program::Claim, line).unwrap_err(), 102, "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error() {
        for (program, line) in [
            (Program::Claim, ""),
            (Program::Claim, "42 43"),
            (Program::Claim, "42 renew"),
            (Program::Claim, "42 --next"),
            (Program::Claim, "42 -t 0"),
            (Program::Claim, "42 -t -5"),
            (Program::Claim, "42 -t 5x"),
            (Program::Claim, "42 --take-over"),
            (Program::Claim, "42 --reason x"),
            (Program::Claim, "42 --expected-token 3"),
            (Program::Claim, "42 --session a/b"),
            (Program::Claim, "42 --wait=0"),
            (Program::Claim, "42 --wait --take-over --reason x"),
            (Program::Claim, "a..b"),
            (Program::Claim, "list"),
            (Program::Claim, "renew -m x 42"),
            (Program::Claim, "log -t 2h"),
            (Program::Claim, "42 -q -v"),
            (Program::Unclaim, "42 --force"),
            (Program::Unclaim, "42 --reason x"),
            (Program::Claims, "42"),
        ] {
            assert_eq!(parsed(program, line).unwrap_err(), 2, "{line}");
        }
    }

    #[test]
    fn help_and_version_are_no_failure() {
        for program in Program::ALL {
            for line in ["-h", "--help", "--version"] {
                assert_eq!(parsed(program, line).unwrap_err(), 0, "{line}");
            }
        }
        assert_eq!(parsed(Program::Claim, "renew -h").unwrap_err(), 0);
    }
}
