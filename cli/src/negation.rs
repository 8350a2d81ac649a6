//! `--no-…`: git's own options can be taken back, and so can ours, above all
//! those that an alias has given.

use clap::{Arg, ArgAction, Command};

/// The same command line, where each long option has its `--no-…`. The one that
/// stands later counts.
pub fn with_negations(command: Command) -> Command {
    let negations: Vec<Arg> = command.get_opts().filter_map(negation).collect();
    command.args(negations).mut_subcommands(with_negations)
}

/// What takes `option` back. Help doesn't list it, as it lists none of git's.
fn negation(option: &Arg) -> Option<Arg> {
    let name = format!("no-{}", option.get_long()?);
    Some(
        Arg::new(name.clone())
            .long(name)
            .action(ArgAction::SetTrue)
            .overrides_with(option.get_id())
            .global(option.is_global_set())
            .hide(true),
    )
}
