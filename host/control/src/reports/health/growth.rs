//! What health says about schedules using more resources than before.

use crate::reports::symptom::Symptom;
use campanile_model::text::size_rounded;
use campanile_store::use_growth::{GrowingSchedule, Growth};

/// Growth beyond this factor gets reported.
const FACTOR: i64 = 2;
/// Medians below this are noise, or too cheap for bothering anyone.
const CPU_US_MIN: i64 = 10_000;
const MEMORY_BYTES_MIN: i64 = 4 << 20;

/// Returns one symptom per growing resource.
pub fn symptoms(growing: &GrowingSchedule) -> Vec<Symptom> {
    let growth = &growing.growth;
    let symptom = |what, last, before| Symptom::UseGrown {
        schedule: growing.schedule.clone(),
        package: growing.package.clone(),
        what,
        last,
        before,
    };
    let milliseconds = |us: i64| format!("{:.1} ms", us as f64 / 1e3);
    let size = |bytes: i64| size_rounded(bytes.unsigned_abs());
    let cpu = has_more_cpu(growth).then(|| {
        let (last, before) = (growth.cpu_us, growth.cpu_us_before);
        symptom("processor time", milliseconds(last), milliseconds(before))
    });
    let memory = has_more_memory(growth).then(|| {
        let (last, before) = (growth.memory_peak_bytes, growth.memory_peak_bytes_before);
        symptom("memory", size(last), size(before))
    });
    cpu.into_iter().chain(memory).collect()
}

pub fn has_more_cpu(growth: &Growth) -> bool {
    let Growth {
        cpu_us,
        cpu_us_before,
        ..
    } = *growth;
    cpu_us >= CPU_US_MIN && cpu_us > cpu_us_before.saturating_mul(FACTOR)
}

pub fn has_more_memory(growth: &Growth) -> bool {
    let (last, before) = (growth.memory_peak_bytes, growth.memory_peak_bytes_before);
    last >= MEMORY_BYTES_MIN && last > before.saturating_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    #[test]
    fn a_sentence_names_the_schedule_and_both_numbers() {
        let mut growing = GrowingSchedule {
            schedule: "nightly".to_owned(),
            package: "etl".to_owned(),
            growth: Growth {
                cpu_us_before: 12_500,
                cpu_us: 40_000,
                memory_peak_bytes_before: 8 * MIB,
                memory_peak_bytes: 8 * MIB,
            },
        };
        let sentence = Vec::from_iter(symptoms(&growing).iter().map(Symptom::to_string));
        assert_eq!(sentence.len(), 1, "{sentence:?}");
        for part in ["`nightly`", "40.0 ms", "12.5 ms", "package show etl"] {
            assert!(sentence[0].contains(part), "{part}: {sentence:?}");
        }
        growing.growth.memory_peak_bytes = 32 * MIB;
        let sentence = Vec::from_iter(symptoms(&growing).iter().map(Symptom::to_string));
        assert_eq!(sentence.len(), 2, "{sentence:?}");
        for part in ["more memory", "32.0 MiB", "8.0 MiB"] {
            assert!(sentence[1].contains(part), "{part}: {sentence:?}");
        }
    }
}
