//! Secrets of many kinds, planted at every place of a recording of every format: none is in the clean copy, and the copy
//! still says the same.
#![allow(clippy::unwrap_used)]

use preflop_core::profile::{Analysis, Profile, window::Choice};
use preflop_import::{import_bytes, redact_bytes};
use rusqlite::Connection;
use serde_json::Value;

/// What people would not give away, each with the part of it that must not be found either. Those that scanners look for are
/// made up and put together here, so that nobody takes them for real ones.
fn secrets() -> Vec<(String, String)> {
    let joined = |parts: &[&str]| parts.concat();
    let whole: Vec<String> = vec![
        joined(&["hf", "_QwErTyUiOpAsDfGhJkLzXcVbNm12345678"]),
        joined(&["gh", "p_16C7e42F292c6912E7710c838347Ae178B4a"]),
        joined(&["github", "_pat_11ABCDEFG0123456789_abcdefghijklmnop"]),
        joined(&["gl", "pat-AbCdEfGhIjKlMnOpQrSt"]),
        joined(&["s", "k-proj-AbCdEf0123456789AbCdEf0123456789"]),
        joined(&["s", "k-ant-api03-ZyXwVuTsRqPoNmLkJiHg"]),
        joined(&["xo", "xb-123456789012-abcdefGHIJKL"]),
        joined(&["AK", "IAIOSFODNN7EXAMPLE"]),
        joined(&["wJalrXUtnFEMI", "/K7MDENG/bPxRfiCYEXAMPLEKEY"]),
        joined(&["AI", "zaSyA-1234567890abcdefghijklmnopqrstu"]),
        joined(&["ey", "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.dBjftJeZ4CVP"]),
        joined(&["DefaultEndpointsProtocol=https;AccountKey=", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50u=="]),
        joined(&["-----BEGIN RSA ", "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\n-----END RSA PRIVATE KEY-----"]),
        joined(&["ssh-ed25519 ", "AAAAC3NzaC1lZDI1NTE5AAAAIOmJ jane@studio"]),
        joined(&["wandb", "_v1_abcdef0123456789abcdef0123456789"]),
        "3f786850e387550fdab836ed7e6de881de23001b".into(),
        "9b74c9897bac770ffc029102a200c5de0123456789abcdef0123456789abcdef".into(),
        "550e8400-e29b-41d4-a716-446655440000".into(),
        "hunter2!correcthorse".into(),
        "correcthorsebatterystaple".into(),
        "postgres://jane:s3cr3tpw@db7.studio.example:5432/clients".into(),
        "https://jane:pw0rd@git.studio.example/apollo.git?key=zz91".into(),
        "/home/jane.doe/apollo/train.py".into(),
        "/Users/Jane Doe/Desktop/apollo.ipynb".into(),
        "C:\\Users\\jane.doe\\apollo\\train.py".into(),
        "\\\\fileserver7\\clients\\apollo".into(),
        "../clients/apollo/weights.bin".into(),
        "clients/apollo/weights.bin".into(),
        "~jane/apollo".into(),
        "jane.doe@studio.example".into(),
        "Jane Doeberg".into(),
        "apollo-node-17.studio.example".into(),
        "janes-laptop".into(),
        "203.0.113.195".into(),
        "2001:db8:85a3::8a2e:370:7334".into(),
        "00:1b:44:11:3a:b7".into(),
        "+1-202-555-0143".into(),
        "4929 1234 5678 9012".into(),
        "4929123456789012".into(),
        "078-05-1120".into(),
        "DE89370400440532013000".into(),
        "1987-11-23".into(),
        "Project Apollo Nightingale".into(),
        "HF_TOKEN=qwertyuiopasdf".into(),
        "kernel'); DROP TABLE clients;--".into(),
        "\u{1b}]0;jane\u{7}".into(),
    ];
    whole
        .into_iter()
        .map(|s| {
            let telling = [
                "jane",
                "Jane",
                "apollo",
                "Apollo",
                "studio",
                "MIIEp",
                "AAAAC3",
                "1234 5678",
                "clients",
                "correct",
            ];
            let part =
                telling.iter().find(|t| s.contains(**t)).map_or_else(|| s.clone(), |t| (*t).to_string());
            (s, part)
        })
        .collect()
}

const KINETO: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132, "warpSize": 32}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
  "metadata": {"env": {"X": "y"}},
  "displayTimeUnit": "ms",
  "traceEvents": [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1712195495505000.25, "dur": 500},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": 1712195495505010.5, "dur": 40, "args": {"External id": 5, "Sequence number": 4, "Input Dims": [[256], [64, 128], [128, 256], [], []], "Input Strides": [[1], [128, 1], [256, 1], [], []], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Concrete Inputs": ["", "", "", "1", "1.5"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1712195495505020, "dur": 6, "args": {"correlation": 77, "cbid": 211}},
    {"ph": "s", "id": 77, "pid": 1, "tid": 1, "ts": 1712195495505020, "cat": "ac2g", "name": "ac2g"},
    {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_64x64_tn", "pid": 0, "tid": 7, "ts": 1712195495505040.25, "dur": 100.125, "args": {"device": 0, "stream": 7, "correlation": 77, "registers per thread": 90, "shared memory": 65536, "grid": [4, 1, 1], "block": [128, 1, 1]}},
    {"ph": "X", "cat": "kernel", "name": "void zeus_flash_gemm<bfloat16>(int)", "pid": 0, "tid": "stream 7", "ts": 1712195495505200, "dur": 10, "args": {"correlation": "18446744073709551615"}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7, "ts": 1712195495505300, "dur": 5, "args": {"bytes": 4096}},
    {"ph": "X", "cat": "python_function", "name": "nn.Module: Linear_0", "pid": 1, "tid": 1, "ts": 1712195495505005, "dur": 60, "args": {"Python id": 1}},
    {"ph": "X", "cat": "python_function", "name": "train.py(12): main", "pid": 1, "tid": 1, "ts": 1712195495505005, "dur": 60},
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
  ]
}"#;

const CHAKRA: &str = r#"{"schema": "1.0.2-chakra.0.0.4", "pid": 17, "time": "2024-01-01", "start_ts": 12, "nodes": [
  {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "inputs": {"values": [], "shapes": [], "types": []}, "outputs": {"values": [], "shapes": [], "types": []}, "attrs": []},
  {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {"values": [[7, 8, 0, 8192, 4, "cuda:0"], [9, 8, 0, 8192, 4, "cuda:0"]], "shapes": [[64, 128], [128, 256]], "types": ["Tensor(float)", "Tensor(float)"], "strides": [[128, 1], [256, 1]]},
   "outputs": {"values": [], "shapes": [[64, 256]], "types": ["Tensor(float)"]}, "attrs": [{"name": "seq_id", "type": "int64", "value": 5}, {"name": "fw_tid", "type": "uint64", "value": 0}, {"name": "op_schema", "type": "string", "value": "aten::mm"}]},
  {"id": 3, "name": "aten::mm", "parent": 1, "inputs": [1, 2], "input_shapes": [[64, 128], [128, 256]], "input_types": ["Tensor(float)", "Tensor(float)"], "seq_id": 6, "tid": 1, "fw_tid": 2}
]}"#;

const NCU_LONG: &str = "==PROF== Connected to process 1\n\
\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Description\"\n\
\"0\",\"17\",\"python\",\"127.0.0.1\",\"copy_kernel\",\"1\",\"7\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"7.5\",\"GPU Speed Of Light Throughput\",\"Duration\",\"ns\",\"21,058,944\",\"\"\n\
\"0\",\"17\",\"python\",\"127.0.0.1\",\"copy_kernel\",\"1\",\"7\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"7.5\",\"Launch Statistics\",\"Registers Per Thread\",\"register/thread\",\"32\",\"use fewer\"\n";

const NCU_WIDE: &str = "\"ID\",\"Process Name\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"gpu__time_duration.sum\",\"dram__bytes.sum\"\n\
\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"usecond\",\"Mbyte\"\n\
\"0\",\"python\",\"k1\",\"(128, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\",\"1.5\",\"2\"\n\
\"1\",\"python\",\"k2\",\"(128, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\",\"2.5\",\"3\"\n";

const NSYS: &str = "
CREATE TABLE StringIds (id INTEGER, value TEXT);
INSERT INTO StringIds VALUES (1, 'ampere_sgemm_64x64_tn'), (2, 'cudaLaunchKernel'), (3, 'never used'), (4, 'training step');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, note TEXT);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 2500, 0, 7, 5, 16777216, 1, 1, 64, 4, 1, 1, 128, 1, 1, 'x');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 950, 16777217, 5, 2);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, text TEXT, textId INTEGER, jsonText TEXT, binaryData TEXT);
INSERT INTO NVTX_EVENTS VALUES (800, 960, 16777217, 'aten::mm, seq = 31, sizes = [[64, 128], [128, 256]]', NULL, '{}', 'x'), (700, 3000, 16777217, NULL, 4, NULL, NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER, uuid TEXT, busLocation TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 132, 150109880320, 'u', 'b');
CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'h');
";

fn clean(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    redact_bytes(bytes, "t", &mut out).ok().map(|_| out)
}

/// Says where a secret is found.
fn check(bytes: &[u8], (secret, part): &(String, String), place: &str) {
    let Some(out) = clean(bytes) else { return };
    let text = String::from_utf8_lossy(&out);
    let escaped = Value::from(secret.as_str()).to_string();
    for found in [secret.as_str(), escaped.trim_matches('"'), part.as_str()] {
        assert!(!text.contains(found), "`{found}` of `{secret}` planted {place} is in the copy:\n{text}");
    }
}

/// All JSON pointers of a document.
fn places(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| places(v, format!("{at}/{i}"), out));
        }
        Value::Object(map) => {
            map.iter().for_each(|(k, v)| places(v, format!("{at}/{}", k.replace('/', "~1")), out));
        }
        _ => {}
    }
    out.push(at);
}

fn every_place_of_json(document: &str) -> usize {
    let original: Value = serde_json::from_str(document).unwrap();
    let mut all = Vec::new();
    places(&original, String::new(), &mut all);
    let mut tried = 0;
    for secret in secrets() {
        let text = Value::from(secret.0.as_str());
        for at in &all {
            let mut planted: Vec<Value> = Vec::new();
            let mut with = |change: &dyn Fn(&mut Value)| {
                let mut copy = original.clone();
                change(copy.pointer_mut(at).unwrap());
                planted.push(copy);
            };
            match original.pointer(at).unwrap() {
                Value::Object(map) => {
                    // A new key, its value, and every key renamed.
                    with(&|v| {
                        v.as_object_mut().unwrap().insert(secret.0.clone(), Value::from(1));
                    });
                    with(&|v| {
                        v.as_object_mut().unwrap().insert("note".into(), text.clone());
                    });
                    for key in map.keys() {
                        with(&|v| {
                            let object = v.as_object_mut().unwrap();
                            let value = object.remove(key).unwrap();
                            object.insert(secret.0.clone(), value);
                        });
                    }
                }
                Value::Array(_) => with(&|v| v.as_array_mut().unwrap().push(text.clone())),
                Value::String(old) => {
                    with(&|v| *v = format!("{old} {}", secret.0).into());
                    with(&|v| *v = format!("{}, {old}", secret.0).into());
                }
                _ => {}
            }
            with(&|v| *v = text.clone());
            for document in planted {
                check(document.to_string().as_bytes(), &secret, at);
                tried += 1;
            }
        }
    }
    tried
}

#[test]
fn no_secret_leaves_a_kineto_trace() {
    let tried = every_place_of_json(KINETO);
    assert!(tried > 10_000, "{tried}");
}

#[test]
fn no_secret_leaves_a_chakra_trace() {
    let tried = every_place_of_json(CHAKRA);
    assert!(tried > 5_000, "{tried}");
}

#[test]
fn no_secret_leaves_a_csv() {
    for table in [NCU_LONG, NCU_WIDE] {
        let lines: Vec<&str> = table.lines().collect();
        for secret in secrets() {
            let field = format!("\"{}\"", secret.0.replace('"', "\"\""));
            for (l, line) in lines.iter().enumerate() {
                let cells: Vec<&str> = line.split("\",\"").collect();
                for c in 0..=cells.len() {
                    let mut changed: Vec<String> =
                        cells.iter().map(|cell| format!("\"{}\"", cell.trim_matches('"'))).collect();
                    if line.starts_with("==") {
                        changed = vec![format!("==PROF== {}", secret.0.replace('\n', " "))];
                    } else if c == cells.len() {
                        changed.push(field.clone());
                    } else {
                        changed[c].clone_from(&field);
                    }
                    let mut copy: Vec<String> = lines.iter().map(|l| (*l).to_string()).collect();
                    copy[l] = changed.join(",");
                    check(copy.join("\n").as_bytes(), &secret, &format!("in line {l}, cell {c}"));
                }
            }
        }
    }
}

fn database(more: &[(&str, &[&dyn rusqlite::ToSql])]) -> Vec<u8> {
    let mut db = Connection::open_in_memory().unwrap();
    db.execute_batch(NSYS).unwrap();
    for (sql, values) in more {
        db.execute(sql, *values).unwrap();
    }
    db.serialize("main").unwrap().to_vec()
}

#[test]
fn no_secret_leaves_an_nsight_database() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(NSYS).unwrap();
    let mut columns: Vec<(String, String)> = Vec::new();
    let tables: Vec<String> = db
        .prepare("SELECT name FROM sqlite_master")
        .unwrap()
        .query_map([], |r| r.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for table in tables {
        let mut query = db.prepare(&format!("PRAGMA table_info({table})")).unwrap();
        let names = query.query_map([], |r| r.get::<_, String>(1)).unwrap();
        columns.extend(names.map(|n| (table.clone(), n.unwrap())));
    }
    for secret in secrets() {
        for (table, column) in &columns {
            // An identifier that is all digits is a number in a column of numbers.
            if secret.0.bytes().all(|b| b.is_ascii_digit()) {
                continue;
            }
            let sql = format!("UPDATE {table} SET {column} = ?1");
            let bytes = database(&[(&sql, &[&secret.0])]);
            check(&bytes, &secret, &format!("in {table}.{column}"));
        }
        let name = secret.0.replace('"', "");
        let new = format!("CREATE TABLE \"{name}\" (x TEXT)");
        let column = format!("ALTER TABLE NVTX_EVENTS ADD COLUMN \"{name}\" TEXT");
        check(&database(&[(&new, &[]), (&column, &[])]), &secret, "as a table and a column");
    }
}

/// What a recording says, as far as figures go.
fn figures(profile: &Profile) -> Vec<f64> {
    let mut out =
        vec![profile.ops.len() as f64, profile.gpu_events.len() as f64, profile.counters.len() as f64];
    out.extend(profile.devices.iter().filter_map(|d| d.sm_count.map(f64::from)));
    if let Ok(a) = Analysis::new(profile, &Choice::default()) {
        out.extend([a.measured().0, a.gpu_busy().0, a.unattributed().0]);
        out.extend(a.groups.iter().filter_map(|g| a.work(g)).map(|w| w.flops.0));
    }
    out
}

#[test]
fn a_clean_copy_says_the_same() {
    let kineto = KINETO.as_bytes().to_vec();
    for bytes in [kineto, CHAKRA.into(), NCU_LONG.into(), NCU_WIDE.into(), database(&[])] {
        let (before, after) =
            (import_bytes(&bytes, "t").unwrap(), import_bytes(&clean(&bytes).unwrap(), "t").unwrap());
        assert_eq!(figures(&before), figures(&after), "{:?}", before.format);
        let families = |p: &Profile| -> Vec<_> {
            p.gpu_events
                .iter()
                .map(|e| preflop_core::profile::kernel_name::classify(p.names.text(e.name)))
                .collect()
        };
        assert_eq!(families(&before), families(&after));
        // Clean once is clean.
        let once = clean(&bytes).unwrap();
        assert_eq!(figures(&import_bytes(&clean(&once).unwrap(), "t").unwrap()), figures(&before));
    }
}

#[test]
fn what_was_left_out_is_told() {
    let mut out = Vec::new();
    let dropped = redact_bytes(KINETO.as_bytes(), "t", &mut out).unwrap();
    assert_eq!(dropped.places["metadata"], 1);
    assert_eq!(dropped.places["events of Python functions"], 1);
    assert_eq!(dropped.changed, 1, "zeus");
    assert!(redact_bytes(b"{\"traceEvents\": [{", "t", &mut out).is_err());
}
