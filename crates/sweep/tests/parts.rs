//! Parts: the same bytes whoever computes them, in whatever order, and after whatever happened.
#![allow(clippy::unwrap_used)]

use preflop_core::time::TimeModel;
use preflop_sweep::{Parts, Plan, Shard, StudyError, Target};
use preflop_table::format::{Format, parquet_bytes};
use preflop_table::{Built, Engine};
use std::path::Path;
use std::sync::LazyLock;

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(TimeModel::embedded(), Box::new(Built)).unwrap());

/// 300 operators, every tenth of which has no size.
const STUDY: &str = "op = \"softmax\"\ndtype = [\"fp32\", \"bf16\", \"fp16\"]\ngpu = \"h200\"\n\
    shape.rows = { from = 0, to = 9, step = 1 }\nshape.cols = { from = 1, to = 10, step = 1 }\n";

fn plan() -> Plan {
    Plan::of_study(STUDY, "s.toml", Some(64)).unwrap()
}

fn whole(folder: &Path, name: &str) -> Vec<u8> {
    let mut plan = plan();
    let path = folder.join(name);
    let target = Target::of(&path.to_string_lossy(), None).unwrap();
    let parts = target.parts(plan.about(), false).unwrap();
    plan.compute(&parts.missing(), &ENGINE, &parts, |_| ()).unwrap();
    assert_eq!(target.finish(&parts).unwrap(), 30);
    assert!(!Parts::beside(&path).exists(), "parts are left behind");
    std::fs::read(path).unwrap()
}

#[test]
fn a_sweep_in_pieces_has_the_bytes_of_one_in_one_piece() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.parquet", "a.csv", "a.jsonl", "a.arrow"] {
        let wanted = whole(folder.path(), name);
        let path = folder.path().join(format!("b{}", &name[1..]));
        let target = Target::of(&path.to_string_lossy(), None).unwrap();
        // Three shards, in an odd order, one of them twice; then the rest.
        for shard in ["3/3", "1/3", "1/3"] {
            let shard = Shard::parse(shard).unwrap();
            let mut plan = plan();
            let parts = target.parts(plan.about(), false).unwrap();
            let own: Vec<u64> = parts.missing().into_iter().filter(|p| shard.has(*p)).collect();
            plan.compute(&own, &ENGINE, &parts, |_| ()).unwrap();
        }
        let mut plan = plan();
        let parts = target.parts(plan.about(), false).unwrap();
        assert_eq!(parts.missing(), [1, 4]);
        plan.compute(&[1, 4], &ENGINE, &parts, |_| ()).unwrap();
        target.finish(&parts).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), wanted, "{name}");
    }
}

#[test]
fn a_folder_is_partitioned_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/out/", folder.path().display());
    let target = Target::of(&path, None).unwrap();
    let mut plan = plan();
    let parts = target.parts(plan.about(), false).unwrap();
    plan.compute(&parts.missing(), &ENGINE, &parts, |_| ()).unwrap();
    assert_eq!(target.finish(&parts).unwrap(), 30);
    for part in 0..5 {
        let batch = plan.part(part, &ENGINE, |_| ()).unwrap();
        assert_eq!(std::fs::read(parts.path(part)).unwrap(), parquet_bytes(&batch).unwrap());
    }
    assert!(Target::of(&path, Some(Format::Csv)).is_err());
}

#[test]
fn parts_of_something_else_are_never_mixed_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let target = Target::of(&path.to_string_lossy(), None).unwrap();
    let first = target.parts(plan().about(), false).unwrap();
    first.keep(0, b"something").unwrap();
    let other = Plan::of_study(&STUDY.replace("bf16", "tf32"), "s.toml", Some(64)).unwrap();
    let error = target.parts(other.about(), false).unwrap_err();
    assert!(
        matches!(error, StudyError::Other { .. }) && error.to_string().contains("`--restart`"),
        "{error}"
    );
    assert_eq!(target.parts(other.about(), true).unwrap().missing().len(), 5);
    // A folder that is not ours is left alone.
    let strange = folder.path().join("strange");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("letter.txt"), "dear").unwrap();
    let target = Target::of(&strange.to_string_lossy(), None).unwrap();
    assert!(target.parts(plan().about(), false).is_err());
    assert!(target.parts(plan().about(), true).is_err());
    assert_eq!(std::fs::read(strange.join("letter.txt")).unwrap(), b"dear");
}

#[test]
fn shards_share_all_parts_out() {
    for count in [1, 2, 3, 7] {
        let shards: Vec<Shard> =
            (1..=count).map(|i| Shard::parse(&format!("{i}/{count}")).unwrap()).collect();
        assert!((0..50).all(|part| shards.iter().filter(|s| s.has(part)).count() == 1));
    }
    for bad in ["", "1", "0/3", "4/3", "a/b", "1/0", "-1/3", "1/2/3"] {
        assert!(Shard::parse(bad).is_err(), "{bad}");
    }
}
