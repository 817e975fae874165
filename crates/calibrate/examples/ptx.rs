//! Writes all kernels as PTX files, for a look and for `ptxas`: `cargo run -p preflop-calibrate --example ptx -- FOLDER`.

use preflop_calibrate::ptx;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/ptx".to_string());
    std::fs::create_dir_all(&folder)?;
    for capability in [50, 70, 75, 80, 89, 90] {
        let tensor = ptx::tensor(capability).into_iter().map(|(ptx, _)| ptx);
        let half = (capability >= 53).then(|| ptx::half(capability));
        for module in [ptx::base(capability)].into_iter().chain(half).chain(tensor) {
            let name = format!("sm_{capability}-{}.ptx", module.name.replace(' ', "-"));
            std::fs::write(Path::new(&folder).join(name), module.text)?;
        }
    }
    Ok(())
}
