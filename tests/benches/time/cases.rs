//! Random cases and their expected answers.

use campanile_schedule::rule::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use chrono::{DateTime, Datelike as _, Days, NaiveDate, NaiveDateTime, TimeDelta, TimeZone as _};
use chrono_tz::Tz;
use rand::Rng as _;
use rand::rngs::StdRng;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// 1980 and 2060: between them the zones have offsets of whole minutes, and `cron` knows the years.
const START_MIN: i64 = 315_532_800;
const START_MAX: i64 = 2_840_140_800;

const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const ZONES: [Tz; 16] = [
    Tz::UTC,
    Tz::America__New_York,
    Tz::America__Sao_Paulo,
    Tz::America__St_Johns,
    Tz::Africa__Casablanca,
    Tz::Antarctica__Troll,
    Tz::Asia__Beirut,
    Tz::Asia__Gaza,
    Tz::Asia__Kathmandu,
    Tz::Asia__Kolkata,
    Tz::Asia__Tehran,
    Tz::Australia__Lord_Howe,
    Tz::Europe__London,
    Tz::Europe__Paris,
    Tz::Pacific__Apia,
    Tz::Pacific__Chatham,
];

/// Return a zone and an instant in seconds. About half of the instants are within a day before a clock change.
pub fn random_zone_and_start(random: &mut StdRng) -> (Tz, i64) {
    let tz = ZONES[random.random_range(0..ZONES.len())];
    let start = random.random_range(START_MIN..START_MAX);
    let mut days = (0..400).map(|day| start + day * DAY);
    match days.find(|&day| offset(tz, day) != offset(tz, day + DAY)) {
        Some(day) if random.random_bool(0.6) => (tz, day + random.random_range(0..HOUR)),
        _ => (tz, start),
    }
}

fn offset(tz: Tz, instant: i64) -> TimeDelta {
    let utc = DateTime::from_timestamp(instant, 0).unwrap();
    utc.with_timezone(&tz).naive_local() - utc.naive_utc()
}

/// A field: every number, a step, or some numbers.
enum Field {
    Star,
    Step(u32),
    Numbers(Vec<u32>),
}

impl Field {
    fn random(random: &mut StdRng, first: u32, last: u32, star: f64) -> Field {
        if random.random_bool(star) {
            return Field::Star;
        }
        if random.random_bool(0.3) {
            return Field::Step(random.random_range(2..=(last - first) / 2));
        }
        let mut numbers: Vec<u32> = (0..random.random_range(1..=3))
            .map(|_| random.random_range(first..=last))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        Field::Numbers(numbers)
    }

    fn allows(&self, number: u32, first: u32) -> bool {
        match self {
            Field::Star => true,
            Field::Step(step) => (number - first).is_multiple_of(*step),
            Field::Numbers(numbers) => numbers.contains(&number),
        }
    }

    fn text(&self, name: impl Fn(u32) -> String) -> String {
        match self {
            Field::Star => "*".to_owned(),
            Field::Step(step) => format!("*/{step}"),
            Field::Numbers(numbers) => {
                let names: Vec<String> = numbers.iter().map(|&number| name(number)).collect();
                names.join(",")
            }
        }
    }
}

/// A rule and a start that all three libraries accept.
pub struct Case {
    fields: [Field; 5],
    tz: Tz,
    /// In seconds.
    pub start: i64,
}

impl Case {
    pub fn random(random: &mut StdRng) -> Case {
        let (tz, start) = random_zone_and_start(random);
        let by_week = random.random_bool(0.5);
        let minute = Field::random(random, 0, 59, 0.2);
        let hour = match random.random_range(0..2) {
            0 => Field::Numbers(vec![random.random_range(0..4)]),
            _ => Field::random(random, 0, 23, 0.4),
        };
        let day = Field::random(random, 1, 28, if by_week { 1.0 } else { 0.5 });
        let month = Field::random(random, 1, 12, 0.8);
        let weekday = match by_week {
            true => Field::Numbers(vec![random.random_range(0..7)]),
            false => Field::Star,
        };
        Case {
            fields: [minute, hour, day, month, weekday],
            tz,
            start,
        }
    }

    /// Return five fields, with weekdays by name: `cron` counts them differently.
    pub fn expression(&self) -> String {
        let [minute, hour, day, month, weekday] = &self.fields;
        let number = |number: u32| number.to_string();
        let texts = [
            minute.text(number),
            hour.text(number),
            day.text(number),
            month.text(number),
            weekday.text(|day| WEEKDAYS[day as usize].to_owned()),
        ];
        texts.join(" ")
    }

    pub fn expression_with_second(&self) -> String {
        format!("0 {}", self.expression())
    }

    pub fn text(&self) -> RuleText {
        RuleText::new(RuleKind::Cron, self.expression(), self.tz.name())
    }

    pub fn local_start(&self) -> DateTime<Tz> {
        let start = DateTime::from_timestamp(self.start, 0).unwrap();
        start.with_timezone(&self.tz)
    }

    /// Print an instant in the zone of the case.
    pub fn show(&self, second: Option<i64>) -> String {
        let instant = second.and_then(|second| DateTime::from_timestamp(second, 0));
        instant.map_or_else(
            || "none".to_owned(),
            |instant| instant.with_timezone(&self.tz).to_string(),
        )
    }

    pub fn is_around_change(&self) -> bool {
        offset(self.tz, self.start) != offset(self.tz, self.start + DAY)
    }

    /// Return the expected answer, in seconds.
    pub fn expected(&self) -> Option<i64> {
        let first = self.local_start().date_naive() - Days::new(1);
        let slots_of = |day: u64| self.slots_of(first + Days::new(day));
        // A clock that goes back over midnight mixes the times of two dates.
        (0..20_000).find_map(|day| {
            let slots = slots_of(day).into_iter();
            slots.clone().min()?;
            slots.chain(slots_of(day + 1)).min()
        })
    }

    /// Return the slots of a date after the start.
    fn slots_of(&self, date: NaiveDate) -> Vec<i64> {
        let [minute, hour, day, month, weekday] = &self.fields;
        let matches = day.allows(date.day(), 1)
            && month.allows(date.month(), 1)
            && weekday.allows(date.weekday().num_days_from_sunday(), 0);
        if !matches {
            return Vec::new();
        }
        let mut slots = Vec::new();
        for h in (0..24).filter(|&h| hour.allows(h, 0)) {
            for m in (0..60).filter(|&m| minute.allows(m, 0)) {
                if let Some(local) = date.and_hms_opt(h, m, 0) {
                    slots.extend(self.instants(local));
                }
            }
        }
        slots.retain(|&slot| slot > self.start);
        slots
    }

    fn instants(&self, local: NaiveDateTime) -> Vec<i64> {
        let [minute, hour, ..] = &self.fields;
        let is_wildcard = |field: &Field| !matches!(field, Field::Numbers(_));
        let is_any_wildcard = is_wildcard(minute) || is_wildcard(hour);
        let found = self.tz.from_local_datetime(&local);
        if let (Some(first), Some(second)) = (found.earliest(), found.latest()) {
            let mut slots = vec![first.timestamp(), second.timestamp()];
            slots.truncate(if is_any_wildcard { 2 } else { 1 });
            return slots;
        }
        if is_any_wildcard {
            return Vec::new();
        }
        let at = |minutes: i64| {
            let near = local + TimeDelta::minutes(minutes);
            self.tz.from_local_datetime(&near).earliest()
        };
        let back_minutes = (1..).find(|&minutes| at(-minutes).is_some()).unwrap_or(0);
        let (forward_minutes, end) = (1..)
            .find_map(|minutes| Some((minutes, at(minutes)?)))
            .unwrap();
        let gap_is_short = back_minutes - 1 + forward_minutes <= 3 * 60;
        gap_is_short.then(|| end.timestamp()).into_iter().collect()
    }
}

/// Return a random rule of the whole dialect.
pub fn random_text(random: &mut StdRng, tz: Tz) -> RuleText {
    let pick = |random: &mut StdRng, items: &[&str]| {
        let item = items[random.random_range(0..items.len())];
        item.replace('#', &random.random_range(1..=5).to_string())
    };
    let second = pick(random, &["", "", "", "0 ", "*/# ", "H "]);
    let minute = pick(
        random,
        &["0", "#", "3#", "*/1#", "*", "H", "H/1#", "5,2#,4#"],
    );
    let hour = pick(random, &["*", "*", "#", "1#", "*/#", "H", "0-6", "2,1#"]);
    let day = pick(
        random,
        &[
            "*", "*", "*", "#", "2#", "L", "L-#", "1#W", "LW", "H", "31", "*/#",
        ],
    );
    let month = pick(random, &["*", "*", "*", "#", "JAN-JUN", "2", "*/#"]);
    let weekday = pick(
        random,
        &["*", "*", "*", "#", "MON-FRI", "SAT~#", "#L", "*/#"],
    );
    let expression = format!("{second}{minute} {hour} {day} {month} {weekday}").replace('~', "#");
    let mut text = RuleText::new(RuleKind::Cron, expression, tz.name());
    let is_wildcard = second.starts_with('*') || minute.starts_with('*') || hour.starts_with('*');
    if !is_wildcard {
        text.dst_gap = [DstGap::Shift, DstGap::Skip][random.random_range(0..2)];
        text.dst_fold = DstFold::ALL[random.random_range(0..DstFold::ALL.len())];
    }
    if !day.starts_with('*') && !weekday.starts_with('*') && random.random_bool(0.5) {
        text.day_match = DayMatch::And;
    }
    if random.random_bool(0.2) {
        text.exclude = vec!["12-25".to_owned(), "* * * * SUN".to_owned()];
    }
    text
}
