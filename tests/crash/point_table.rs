//! The table of a test in which a host dies at each named point: one row for each point, with counts of what followed.

use campanile_tests::Backend;

/// What is counted, and how.
pub struct PointTable<const N: usize> {
    pub columns: [&'static str; N],
    /// Let a host die at the point, and return the counts of this case.
    pub crash_at: fn(&str, Backend) -> [usize; N],
    pub expected: fn(&str) -> [usize; N],
}

impl<const N: usize> PointTable<N> {
    /// Print the rows of `points`, each of which must be as expected.
    pub fn check(&self, points: &[&str], backend: Backend) {
        let row = |first: &str, cells: [String; N]| {
            let cells = cells.iter().zip(self.columns);
            let cells = cells.map(|(cell, column)| format!("  {cell:>0$}", column.len()));
            format!("{first:<28}{}\n", cells.collect::<String>())
        };
        let mut table = row("the host dies", self.columns.map(str::to_owned));
        std::thread::scope(|scope| {
            let start = |point| {
                // A site waits for its turn, so that not all of them run at once.
                let case = move || (self.crash_at)(point, backend);
                (point, scope.spawn(case))
            };
            let cases: Vec<_> = points.iter().copied().map(start).collect();
            for (point, case) in cases {
                let place = format!("{point} on {}: {:?}", backend.name(), self.columns);
                let counts = case.join().unwrap_or_else(|_| panic!("{place}"));
                table.push_str(&row(point, counts.map(|count| count.to_string())));
                assert_eq!(counts, (self.expected)(point), "{place}");
            }
        });
        println!("{}:\n{table}", backend.name());
    }
}
