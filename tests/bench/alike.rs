//! Whether the times of two kinds of answers are of one distribution, so that
//! nobody can tell by them which of the two it was.

use std::time::Duration;

use super::{Row, Target};
use crate::support::random;

/// How many times of each kind.
const TIMES: usize = 1_001;

/// How often the two kinds are mixed up to see what chance makes of them.
const SHUFFLES: usize = 1_000;

/// The largest difference between the shares of `a` and of `b` that are below any
/// one value (Kolmogorov and Smirnov's).
fn distance(mut a: Vec<f64>, mut b: Vec<f64>) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let share = |of: &[f64], value: f64| {
        of.partition_point(|other| *other <= value) as f64 / of.len() as f64
    };
    let differences = a
        .iter()
        .chain(&b)
        .map(|value| share(&a, *value) - share(&b, *value));
    differences.map(f64::abs).fold(0.0, f64::max)
}

/// What 99 of 100 distances do not exceed where the two kinds are one: each pair,
/// which was timed at about the same moment, may be the other way round.
fn by_chance(pairs: &[(f64, f64)]) -> f64 {
    let mut distances: Vec<f64> = (0..SHUFFLES)
        .map(|_| {
            let turned = pairs.iter().map(|(a, b)| match random(2) {
                0 => (*a, *b),
                _ => (*b, *a),
            });
            let (a, b) = turned.unzip();
            distance(a, b)
        })
        .collect();
    distances.sort_by(f64::total_cmp);
    distances[SHUFFLES * 99 / 100]
}

fn row(what: &str, target: Target, pairs: &[(f64, f64)]) -> Row {
    let (a, b) = pairs.iter().copied().unzip();
    let (found, chance) = (distance(a, b), by_chance(pairs));
    Row {
        what: what.to_owned(),
        ours: format!("{found:.3}"),
        beside: format!("{chance:.3}"),
        measured: found / chance,
        target,
    }
}

/// Compares the times of `ours` with those of `beside`, taken in turn; below it the
/// noise, and what would be noticed.
pub fn rows(
    what: &str,
    than: &'static str,
    mut ours: impl FnMut() -> Duration,
    mut beside: impl FnMut() -> Duration,
) -> [Row; 3] {
    let pairs: Vec<(f64, f64)> = (0..TIMES)
        .map(|n| {
            // Neither is always the first.
            let first = (n % 2 == 0).then(&mut ours);
            let second = beside();
            (
                first.unwrap_or_else(&mut ours).as_secs_f64(),
                second.as_secs_f64(),
            )
        })
        .collect();
    // Those that came first beside such, and those that came second.
    let halves: Vec<(f64, f64)> = pairs
        .chunks_exact(4)
        .flat_map(|four| [(four[0].1, four[2].1), (four[1].1, four[3].1)])
        .collect();
    let slower: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (a * 1.05, *b)).collect();
    [
        row(what, Target::AtMost(1.0, than), &pairs),
        row(
            "  the noise: every other one",
            Target::None("of the latter"),
            &halves,
        ),
        row(
            "  what would be noticed",
            Target::None("were it 5 % slower"),
            &slower,
        ),
    ]
}
