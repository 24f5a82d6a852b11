//! Any text as a node's configuration, and as a request on its control socket: an error or a configuration, never a panic.
#![no_main]

use henge_config::Source;
use henge_api::Request;
use henge_node::NodeConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match NodeConfig::parse(Source::new("node.toml", text)) {
        Ok(config) => {
            for pool in &config.pools {
                let _ = henge_sched::build(&pool.scheduler.name, pool.scheduler.knobs.clone());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = serde_json::from_str::<Request>(text);
});
