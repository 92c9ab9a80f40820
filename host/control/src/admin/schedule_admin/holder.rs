//! Pure: who keeps a schedule's name when several definitions want it. Authority decides, not who came first.

use campanile_package::{ScheduleDefinition, names};
use campanile_store::Origin;
use campanile_store::schedules::Schedule;

/// The origin and package of the schedule holding a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub origin: Origin,
    pub package: String,
}

impl Holder {
    pub(super) fn of(schedule: &Schedule) -> Holder {
        Holder {
            origin: schedule.state.origin,
            package: schedule.definition.package.clone(),
        }
    }

    /// Whether a definition of `origin` can take the name from this holder.
    ///
    /// Proposals yield to all definitions by the operator, and to proposals of packages with a better claim to the name. Nothing
    /// else yields.
    pub(super) fn yields_to(&self, wanted: &ScheduleDefinition, origin: Origin) -> bool {
        let claim = |package: &str| names::claim(package, &wanted.name);
        match (self.origin, origin) {
            (Origin::Package, Origin::Package) => claim(&wanted.package) > claim(&self.package),
            (Origin::Package, _) => true,
            _ => false,
        }
    }

    /// Says whose schedule it is, for ending a sentence.
    pub fn text(&self) -> String {
        let package = &self.package;
        match self.origin {
            Origin::Operator => "the operator's".to_owned(),
            Origin::File => "defined in the schedules file".to_owned(),
            Origin::Sidecar => format!("defined in {package}.toml"),
            Origin::Package => format!("proposed by the package `{package}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::json_text::JsonObject;
    use campanile_schedule::policy::Policies;
    use campanile_schedule::rule::{RuleKind, RuleText};

    fn wanted(package: &str, name: &str) -> ScheduleDefinition {
        ScheduleDefinition {
            name: name.to_owned(),
            package: package.to_owned(),
            task: None,
            rule: RuleText::new(RuleKind::Every, "1h", "UTC"),
            policies: Policies::default(),
            args: None,
            context: JsonObject::new(),
            enabled: true,
        }
    }

    #[test]
    fn only_a_proposal_yields_and_only_to_more_authority() {
        let holder = |origin, package: &str| Holder {
            origin,
            package: package.to_owned(),
        };
        for held in Origin::ALL {
            for wants in Origin::ALL {
                let yields = holder(*held, "aaa").yields_to(&wanted("hello", "tick"), *wants);
                let expected = *held == Origin::Package && *wants != Origin::Package;
                assert_eq!(yields, expected, "{held} yields to {wants}");
            }
        }
        let proposal = |package, wants, name| {
            holder(Origin::Package, package).yields_to(&wanted(wants, name), Origin::Package)
        };
        assert!(proposal("aaa", "hello", "hello"));
        assert!(proposal("aaa", "hello", "hello-2"));
        assert!(proposal("hello", "hello-world", "hello-world.v2"));
        assert!(proposal("@a/x", "@a/hello", "@a/hello_nightly"));
        assert!(!proposal("hello", "aaa", "hello-2"));
        assert!(!proposal("hello-world", "hello", "hello-world"));
        assert!(!proposal("aaa", "hello", "helloworld"));
        assert!(!proposal("aaa", "bbb", "tick"));
    }
}
