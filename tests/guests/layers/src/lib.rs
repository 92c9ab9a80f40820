//! 128 layers of two tasks. Each task depends on both tasks of the layer before, passes on its own name, and returns how
//! many names it got. The number of paths doubles with each layer.

use campanile_sdk::{AnyContext, Package, Run, Task};

const LAYERS: usize = 128;

/// Return the task of a layer: `l0a`, `l0b`, `l1a` and so on.
fn task(layer: usize, side: char) -> Task {
    let id = format!("l{layer}{side}");
    let key = id.clone();
    let task = Task::new(id, move |run: &Run, _: AnyContext| {
        run.pass(key.as_str(), layer)?;
        let names = run.context().keys().filter(|key| key.starts_with('l'));
        Ok(names.filter(|key| key.ends_with(['a', 'b'])).count())
    });
    let before = (layer > 0).then(|| ["a", "b"].map(|side| format!("l{}{side}", layer - 1)));
    task.depends_on(before.into_iter().flatten())
}

fn package() -> Package {
    let tasks = (0..LAYERS).flat_map(|layer| ['a', 'b'].map(|side| task(layer, side)));
    let package = Package::new("layers", env!("CARGO_PKG_VERSION"));
    tasks.fold(package, Package::task)
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_depends_on_the_one_before() {
        let tasks = package().manifest()["tasks"].clone();
        assert_eq!(tasks.as_array().map(Vec::len), Some(256));
        assert_eq!(tasks[255]["depends_on"][0], "l126a");
        let run = Run::fake().build();
        assert_eq!(package().call::<usize>("l0a", &run).unwrap(), 0);
    }
}
