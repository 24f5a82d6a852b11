//! What requests ask for.
//!
//! Source: `enum PVFS_server_op` of `src/proto/pvfs2-req-proto.h`.

/// What a request asks for; those that a proxy looks into have names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// 3: read or write with bulk data.
    Io,
    /// 4
    GetAttr,
    /// 13: the server's configuration file.
    GetConfig,
    /// 14: response only.
    WriteCompletion,
    /// 16: how a server works, for all of its clients.
    SetParam,
    /// 33: read or write with the data inside.
    SmallIo,
    /// Any other.
    Other(i32),
}

/// A file grows out of its first server: asks and answers as GETATTR does, and its client goes on with the capability in the answer.
pub(crate) const UNSTUFF: Op = Op::Other(38);

impl Op {
    /// From its number.
    pub const fn from_number(n: i32) -> Op {
        match n {
            3 => Op::Io,
            4 => Op::GetAttr,
            13 => Op::GetConfig,
            14 => Op::WriteCompletion,
            16 => Op::SetParam,
            33 => Op::SmallIo,
            n => Op::Other(n),
        }
    }
    /// By the name that it has in a configuration.
    pub fn from_name(name: &str) -> Option<Op> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| Op::from_number(*number))
    }
    /// Whether a server may await its disk before it answers: it changes metadata, or makes something durable.
    pub fn may_sync(self) -> bool {
        SYNCS.contains(&self.number())
    }
    /// Its number.
    pub const fn number(self) -> i32 {
        match self {
            Op::Io => 3,
            Op::GetAttr => 4,
            Op::GetConfig => 13,
            Op::WriteCompletion => 14,
            Op::SetParam => 16,
            Op::SmallIo => 33,
            Op::Other(n) => n,
        }
    }
}

/// Names of what clients ask for but reads and writes, as servers' sources have them.
pub const NAMES: [(i32, &str); 38] = [
    (1, "create"),
    (2, "remove"),
    (4, "getattr"),
    (5, "setattr"),
    (6, "lookup_path"),
    (7, "crdirent"),
    (8, "rmdirent"),
    (9, "chdirent"),
    (10, "truncate"),
    (11, "mkdir"),
    (12, "readdir"),
    (13, "getconfig"),
    (15, "flush"),
    (17, "mgmt_noop"),
    (18, "statfs"),
    (20, "mgmt_perf_mon"),
    (21, "mgmt_iterate_handles"),
    (23, "mgmt_event_mon"),
    (24, "mgmt_remove_object"),
    (25, "mgmt_remove_dirent"),
    (26, "mgmt_get_dirdata_handle"),
    (29, "geteattr"),
    (30, "seteattr"),
    (31, "deleattr"),
    (32, "listeattr"),
    (34, "listattr"),
    (35, "batch_create"),
    (38, "unstuff"),
    (41, "tree_remove"),
    (42, "tree_get_file_size"),
    (43, "mgmt_get_uid"),
    (44, "tree_setattr"),
    (45, "mgmt_get_dirent"),
    (46, "mgmt_create_root_dir"),
    (47, "mgmt_split_dirent"),
    (48, "atomiceattr"),
    (49, "tree_getattr"),
    (50, "mgmt_get_user_cert"),
];
/// Those that change metadata, or make something durable.
const SYNCS: [i32; 18] = [1, 2, 5, 7, 8, 9, 10, 11, 15, 24, 25, 30, 31, 35, 38, 41, 44, 48];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_order() {
        assert!(NAMES.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 != two[1].1));
        for (number, name) in NAMES {
            assert_eq!(Op::from_name(name).map(Op::number), Some(number));
        }
        assert_eq!(Op::from_name("io"), None);
        assert!(SYNCS.iter().all(|number| NAMES.iter().any(|(known, _)| known == number)));
    }
}
