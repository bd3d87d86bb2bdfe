//! Traces: one row a request, from a folder of traces or from the cuts that the repository carries.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{BATCH, Job, Load, Recipe, SECOND, Tenant};

/// Where traces are read from.
pub struct Folder {
    /// The whole traces, where they are there.
    whole: Option<PathBuf>,
    /// The cuts beside this crate.
    cuts: PathBuf,
    /// Seed of what is drawn for a trace that is not there.
    seed: u64,
}

/// A part of a load: one file, played so many times as fast as it was recorded.
pub struct Part {
    /// The file without its ending.
    pub file: &'static str,
    /// 1.0 is as recorded.
    pub speed: f64,
}

impl Folder {
    /// `QUOTA_TRACES`, or `../shared/traces` beside the workspace, or nothing but the cuts.
    pub fn find(seed: u64) -> Folder {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let named = std::env::var_os("QUOTA_TRACES").map(PathBuf::from);
        let beside = crate_folder.parent().and_then(Path::parent).map(|folder| folder.join("shared/traces"));
        let whole = named.or(beside).filter(|folder| folder.join("synth_hog.csv").is_file());
        Folder { whole, cuts: crate_folder.join("traces"), seed }
    }

    /// What a reader of the results has to know about their source.
    pub fn describe(&self) -> String {
        match &self.whole {
            Some(folder) => format!("whole traces from {}", folder.display()),
            None => "no folder of whole traces (QUOTA_TRACES): recorded loads are the first minutes only, which are in \
                     benches/traces; synthetic loads are drawn anew by their recipes, so figures differ from the anchors'"
                .to_owned(),
        }
    }

    /// A synthetic load of ten minutes: its file, or its recipe.
    pub fn synthetic(&self, name: &str) -> Load {
        match &self.whole {
            Some(folder) => {
                let file = folder.join(format!("synth_{name}.csv"));
                let mut load = Load { name: name.to_owned(), tenants: vec![], jobs: vec![], until: 600 * SECOND };
                read(&file, 1.0, &mut load);
                load
            }
            None => Recipe::named(name).draw(name, 600, self.seed),
        }
    }

    /// Recorded parts played together, for ten minutes or as long as all of them last.
    pub fn recorded(&self, name: &str, parts: &[Part]) -> Load {
        let mut load = Load { name: name.to_owned(), tenants: vec![], jobs: vec![], until: 600 * SECOND };
        for part in parts {
            let whole = self.whole.as_ref().map(|folder| folder.join(format!("{}.csv", part.file)));
            let file = whole.unwrap_or_else(|| self.cuts.join(format!("{}.csv", part.file)));
            let last = read(&file, part.speed, &mut load);
            // A cut ends early; the run has to end with the shortest part.
            load.until = load.until.min(last.div_ceil(SECOND) * SECOND);
        }
        load.jobs.sort_by_key(|job| job.at);
        load
    }
}

/// Reads a file into a load; gives the moment of its last row.
fn read(file: &Path, speed: f64, load: &mut Load) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| head.iter().position(|column| *column == name);
    let need = |name: &str| column(name).unwrap_or_else(|| panic!("{}: no column {name}", file.display()));
    let (at, input, output) = (need("arrival_s"), need("input_tokens"), need("output_tokens"));
    let (tenant, class) = (need("tenant"), column("class"));
    let mut places: HashMap<String, usize> =
        load.tenants.iter().enumerate().map(|(place, tenant)| (tenant.name.clone(), place)).collect();
    let mut last = 0;
    for (number, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |column: usize| cells.get(column).copied().unwrap_or_default();
        let number = |column: usize| -> f64 {
            cell(column).parse().unwrap_or_else(|_| panic!("{}:{}: not a number", file.display(), number + 2))
        };
        let name = cell(tenant);
        let place = *places.entry(name.to_owned()).or_insert_with(|| {
            let mut tenant = Tenant::new(name);
            if class.is_some_and(|class| cell(class) == "batch") {
                tenant.lane = BATCH;
            }
            load.tenants.push(tenant);
            load.tenants.len() - 1
        });
        let at = (number(at) / speed * 1e9) as u64;
        last = last.max(at);
        let (input, output) = ((number(input) as u64).max(1), (number(output) as u64).max(1));
        load.jobs.push(Job { at, tenant: place, input, output });
    }
    last
}
