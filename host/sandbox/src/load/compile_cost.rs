//! The cost of compiling a component, estimated before the compiler starts.
//!
//! The time and memory of Cranelift grow with the number of live values times the number of branches and joins. A file
//! of some hundred kilobytes can cost minutes and gigabytes. Ordinary compilers stay far below that: in the JavaScript
//! engine of componentize-js (10 MiB) the costliest function has 2.5 million units and the whole 110 million; in
//! CPython (10 MiB) they have 1 million and 70 million.

use wasmparser::{
    BinaryReaderError, FuncValidator, FuncValidatorAllocations, FunctionBody, Operator, Parser,
    ValidPayload, Validator, ValidatorResources, WasmFeatures,
};

use crate::load::refusal::{Refusal, newer, one_line, refuse};

/// The most units of one function. It then compiles within about 5 s of processor time and 400 MiB.
///
/// The dense code of an interpreter has 14 units a byte, so that one function of 600 KiB still passes.
const FUNCTION_COST_MAX: u64 = 10_000_000;

/// The most units of a component: some 35 MiB of ordinary code.
const COMPONENT_COST_MAX: u64 = 400_000_000;

/// The units of one value that an operator takes or gives. A call of three bytes may have two thousand values.
const COST_PER_OPERAND: u64 = 16;

/// The engine's words for a proposal that is a part of WASI 0.3 alone. A test notices when they change.
const ASYNC_FEATURE: &str = "component model async";
/// The engine's words for instructions of a proposal that it does not support. A test notices when they change.
const NOT_SUPPORTED: &str = " support is not enabled";

/// Refuse a component that is not valid or would take far too long to compile.
pub(crate) fn check(component: &[u8]) -> Result<(), Refusal> {
    // The engine itself refuses the proposals that it does not support.
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let mut allocations = FuncValidatorAllocations::default();
    let mut whole = 0;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.map_err(|error| invalid(&error))?;
        let payload = validator.payload(&payload);
        let ValidPayload::Func(function, body) = payload.map_err(|error| invalid(&error))? else {
            continue;
        };
        let mut function = function.into_validator(allocations);
        let cost = cost(&mut function, &body).map_err(|error| invalid(&error))?;
        if cost > FUNCTION_COST_MAX {
            return Err(too_hard(&function, &body));
        }
        whole += cost;
        allocations = function.into_allocations();
    }
    if whole > COMPONENT_COST_MAX {
        return refuse(format!(
            "this package would take minutes to compile ({whole} units of work, and {COMPONENT_COST_MAX} are allowed); \
             build in release mode, or make several packages of it"
        ));
    }
    Ok(())
}

/// Returns the refusal of an invalid component.
pub(crate) fn invalid(error: &impl ToString) -> Refusal {
    let error = error.to_string();
    if error.contains(ASYNC_FEATURE) {
        return Refusal::new(newer("uses asynchronous functions of components"));
    }
    if let Some((before, _)) = error.split_once(NOT_SUPPORTED) {
        let proposal = before.rsplit(": ").next().unwrap_or(before);
        let remedy = match proposal {
            "threads" => {
                "a task has one thread; build it without `-pthread` and without the feature `atomics`"
            }
            _ => "build it without that feature",
        };
        return Refusal::new(format!(
            "this package has instructions of the WebAssembly feature `{}`, which Campanile does not run: {remedy}",
            one_line(proposal)
        ));
    }
    Refusal::new(format!(
        "the component is not valid: {}; build it again with a current toolchain",
        one_line(&error)
    ))
}

fn too_hard(function: &FuncValidator<ValidatorResources>, body: &FunctionBody<'_>) -> Refusal {
    Refusal::new(format!(
        "one function of this package (number {} of its module, {} bytes, {} local variables) would take far too long to compile; \
         build in release mode, or split it into smaller ones",
        function.index(),
        body.range().len(),
        function.len_locals()
    ))
}

/// Returns the cost of a function: a unit is one live value at a branch or join. Counting stops beyond the limit.
fn cost(
    function: &mut FuncValidator<ValidatorResources>,
    body: &FunctionBody<'_>,
) -> Result<u64, BinaryReaderError> {
    let mut reader = body.get_binary_reader();
    function.read_locals(&mut reader)?;
    let mut cost = 0;
    while !reader.eof() && cost <= FUNCTION_COST_MAX {
        let offset = reader.original_position();
        let operator = reader.peek_operator(&function.visitor(offset))?;
        let arity = operator.operator_arity(function);
        let operands = arity.map_or(0, |(takes, gives)| u64::from(takes) + u64::from(gives));
        cost += operands * COST_PER_OPERAND + cost_of_branch(&operator, function);
        reader.visit_operator(&mut function.visitor(offset))??;
    }
    Ok(cost)
}

/// Returns the number of values that live on into another block, if `operator` begins or ends one.
fn cost_of_branch(operator: &Operator<'_>, function: &FuncValidator<ValidatorResources>) -> u64 {
    let live = u64::from(function.len_locals()) + u64::from(function.operand_stack_height());
    match operator {
        // Each enclosing loop looks at the values of a loop once more.
        Operator::Loop { .. } => live + u64::from(function.control_stack_height()),
        Operator::If { .. } | Operator::Else | Operator::End | Operator::BrIf { .. } => live,
        Operator::BrTable { targets } => live + u64::from(targets.len()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), Refusal> {
        super::check(&wat::parse_str(text).unwrap())
    }

    /// A module with one function that has `locals` variables and does `body`.
    fn function(locals: usize, body: &str) -> String {
        let locals = "i32 ".repeat(locals);
        format!("(module (func (param i32) (local {locals}) {body}))")
    }

    /// Loops over `junctions` branches.
    fn branches(junctions: usize) -> String {
        let branch = "(if (local.get 0) (then (local.set 1 (local.get 2))))";
        format!("(loop $again {} (br $again))", branch.repeat(junctions))
    }

    #[track_caller]
    fn assert_too_hard(text: &str) {
        let message = check(text).unwrap_err().message;
        assert!(message.contains("far too long to compile"), "{message}");
    }

    #[test]
    fn many_variables_over_many_branches_are_too_hard() {
        assert_eq!(check(&function(100, &branches(10_000))), Ok(()));
        assert_eq!(check(&function(3_000, &branches(500))), Ok(()));
        assert_too_hard(&function(3_000, &branches(10_000)));
    }

    #[test]
    fn calls_that_carry_thousands_of_values_are_too_hard() {
        let values = "i64 ".repeat(1_000);
        let calls = |n| {
            format!(
                "(module (func $wide (param {values}) (result {values}) unreachable) (func {} {} {}))",
                "(i64.const 1)".repeat(1_000),
                "call $wide ".repeat(n),
                "drop ".repeat(1_000),
            )
        };
        assert_eq!(check(&calls(100)), Ok(()));
        assert_too_hard(&calls(500));
    }

    #[test]
    fn loops_in_loops_without_end_are_too_hard() {
        let nested = |n| {
            format!(
                "{} {}",
                "loop local.get 0 br_if 0 ".repeat(n),
                "end ".repeat(n)
            )
        };
        assert_eq!(check(&function(1, &nested(1_000))), Ok(()));
        assert_too_hard(&function(1, &nested(20_000)));
    }

    #[test]
    fn a_single_function_of_hundreds_of_kilobytes_is_not() {
        let line = "(i32.store (local.get 0) (i32.add (i32.load (local.get 0)) (i32.const 3)))";
        let text = format!(
            "(module (memory 1) (func (param i32) (local {}) {}))",
            "i32 ".repeat(60),
            format!(
                "{} (if (local.get 0) (then (local.set 1 (local.get 2))))",
                line.repeat(3)
            )
            .repeat(11_000)
        );
        assert!(wat::parse_str(&text).unwrap().len() > 500_000);
        assert_eq!(check(&text), Ok(()));
    }

    #[test]
    fn hard_functions_are_counted_together() {
        let locals = "i32 ".repeat(1_000);
        let hard = format!("(func (param i32) (local {locals}) {})", branches(4_000));
        let whole = |n| format!("(component (core module {}))", hard.repeat(n));
        assert_eq!(check(&whole(3)), Ok(()));
        let message = check(&whole(60)).unwrap_err().message;
        assert!(message.contains("minutes to compile"), "{message}");
    }

    #[test]
    fn what_is_not_valid_is_told_before_it_is_compiled() {
        let message = check("(module (func (result i32)))").unwrap_err().message;
        assert!(
            message.starts_with("the component is not valid: "),
            "{message}"
        );
    }
}
