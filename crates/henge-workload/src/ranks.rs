//! Parallel programs whose every rank writes or reads a file region of its own, in an order fixed beforehand: IOR, BTIO.
//!
//! A rank is a thread of a closed loop with one request outstanding.

use henge_core::{Duration, Op};

/// IOR's segmented layout: `segments` times, every rank has a `block` that it moves in pieces of `transfer`.
///
/// Rank r's transfer j in segment s is at s · ranks · block + r · block + j · transfer (IOR's -b, -t, -s).
/// With block = transfer that is the strided pattern. Ranks come one after the other in the file, so small blocks of
/// many ranks interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ior {
    /// Ranks.
    pub ranks: u32,
    /// Bytes that a rank owns in a segment (-b).
    pub block: u64,
    /// Bytes of one request (-t).
    pub transfer: u64,
    /// Segments (-s).
    pub segments: u64,
    /// Whether it reads.
    pub op: Op,
    /// What a rank computes before each segment.
    pub compute: Duration,
    /// Whether ranks wait for each other before each segment.
    pub collective: bool,
    /// Whether to begin again at the end.
    pub repeat: bool,
}

/// NPB's BT with I/O: `dumps` times (40 in the definition) the ranks compute, then write the N³ grid of five doubles
/// (40 bytes a point), N = 64, 102, 162 for class A, B, C.
///
/// *Full* gathers a dump into collective buffers, so that rank r writes a contiguous 1/P of it in pieces of `buffer`.
/// *Simple* writes every row of a rank's cells by itself: with P = q² ranks in diagonal multi-partitioning, rank
/// (x, y) owns in each layer z of q the cell ((x + z) mod q, (y − z) mod q, z), whose rows are N/q points long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Btio {
    /// Ranks; a square number.
    pub ranks: u32,
    /// Grid points along one side, N.
    pub side: u64,
    /// How often the grid is written.
    pub dumps: u64,
    /// Bytes of one request of the full kind; 0 is the simple kind.
    pub buffer: u64,
    /// What a rank computes before each dump.
    pub compute: Duration,
    /// Whether ranks wait for each other before each dump.
    pub collective: bool,
    /// Whether to begin again at the end.
    pub repeat: bool,
}

/// Bytes of one grid point: five doubles.
const POINT: u64 = 40;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The parameterized benchmark.
    Ior(Ior),
    /// The block-tridiagonal solver.
    Btio(Btio),
}

/// Yields each rank's requests in turn.
#[derive(Clone, Debug)]
pub struct Ranks {
    program: Program,
    start: u64,
    /// Requests that each rank has sent.
    sent: Vec<u64>,
    /// Who waits for the others.
    gathered: Vec<u32>,
}

impl Ranks {
    /// The file lies in the `span` bytes from `start` on; `Err` says how large it is when it does not fit.
    pub fn new(program: Program, start: u64, span: u64) -> Result<Self, String> {
        let bytes = program.bytes();
        if bytes > span {
            return Err(format!("the file has {bytes} bytes, the area {span}"));
        }
        let ranks = program.ranks() as usize;
        Ok(Ranks { program, start, sent: vec![0; ranks], gathered: Vec::with_capacity(ranks) })
    }

    /// Whether `rank` waits for the others before its next request.
    pub fn gathers(&self, rank: u32) -> bool {
        let Some(sent) = self.sent.get(rank as usize) else { return false };
        let ended = *sent == self.program.requests(rank) && !self.program.repeat();
        self.program.collective() && !ended && sent.is_multiple_of(self.program.requests_of_phase(rank))
    }

    /// A rank waits for the others; all of them when it is the last.
    pub fn gather(&mut self, rank: u32) -> Vec<u32> {
        self.gathered.push(rank);
        if self.gathered.len() < self.program.ranks() as usize {
            return Vec::new();
        }
        std::mem::take(&mut self.gathered)
    }

    /// The next request of `rank` and what it computes before; `None` when it has sent all.
    pub fn draw(&mut self, rank: u32) -> Option<(Op, u64, u64, Duration)> {
        let sent = self.sent.get_mut(rank as usize)?;
        if *sent == self.program.requests(rank) && self.program.repeat() {
            *sent = 0;
        }
        let (op, offset, len, compute) = self.program.request(rank, *sent)?;
        *sent += 1;
        Some((op, self.start + offset, len, compute))
    }
}

impl Program {
    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        match self {
            Program::Ior(ior) => ior.ranks,
            Program::Btio(bt) => bt.ranks,
        }
    }
    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        match self {
            Program::Ior(ior) => ior.segments.saturating_mul(u64::from(ior.ranks)).saturating_mul(ior.block),
            Program::Btio(bt) => bt.dumps.saturating_mul(bt.dump()),
        }
    }
    fn repeat(&self) -> bool {
        match self {
            Program::Ior(ior) => ior.repeat,
            Program::Btio(bt) => bt.repeat,
        }
    }
    fn collective(&self) -> bool {
        match self {
            Program::Ior(ior) => ior.collective,
            Program::Btio(bt) => bt.collective,
        }
    }
    /// How many requests a rank sends in a segment, or a dump.
    fn requests_of_phase(&self, rank: u32) -> u64 {
        match self {
            Program::Ior(ior) => ior.block.div_ceil(ior.transfer),
            Program::Btio(bt) => bt.requests_of_dump(rank),
        }
    }
    /// How many requests a rank sends in all.
    pub fn requests(&self, rank: u32) -> u64 {
        match self {
            Program::Ior(ior) => ior.segments * ior.block.div_ceil(ior.transfer),
            Program::Btio(bt) => bt.dumps * bt.requests_of_dump(rank),
        }
    }
    /// A rank's n-th request.
    fn request(&self, rank: u32, n: u64) -> Option<(Op, u64, u64, Duration)> {
        if n >= self.requests(rank) {
            return None;
        }
        match self {
            Program::Ior(ior) => {
                let per_block = ior.block.div_ceil(ior.transfer);
                let (segment, piece) = (n / per_block, n % per_block);
                let block = (segment * u64::from(ior.ranks) + u64::from(rank)) * ior.block;
                let len = ior.transfer.min(ior.block - piece * ior.transfer);
                let compute = if piece == 0 { ior.compute } else { Duration::ZERO };
                Some((ior.op, block + piece * ior.transfer, len, compute))
            }
            Program::Btio(bt) => {
                let per_dump = bt.requests_of_dump(rank);
                let (dump, piece) = (n / per_dump, n % per_dump);
                let (offset, len) = if bt.buffer > 0 { bt.full(rank, piece) } else { bt.simple(rank, piece) };
                let compute = if piece == 0 { bt.compute } else { Duration::ZERO };
                Some((Op::Write, dump * bt.dump() + offset, len, compute))
            }
        }
    }
}

impl Btio {
    /// Bytes of one dump.
    fn dump(&self) -> u64 {
        POINT * self.side.pow(3)
    }
    /// q, the cells along one side.
    fn cells(&self) -> u64 {
        u64::from(self.ranks).isqrt()
    }
    /// First point of cell `c` along one side; the remainder goes to the first cells, as in NPB.
    fn cell_start(&self, c: u64) -> u64 {
        let (each, more) = (self.side / self.cells(), self.side % self.cells());
        c * each + c.min(more)
    }
    /// The contiguous share of `rank` in a dump: first and last point.
    fn share(&self, rank: u32) -> (u64, u64) {
        let points = self.side.pow(3);
        let (r, ranks) = (u64::from(rank), u64::from(self.ranks));
        (points * r / ranks, points * (r + 1) / ranks)
    }
    fn requests_of_dump(&self, rank: u32) -> u64 {
        if self.buffer > 0 {
            let (from, to) = self.share(rank);
            return ((to - from) * POINT).div_ceil(self.buffer);
        }
        (0..self.cells()).map(|z| self.rows(rank, z)).sum()
    }
    /// Cell of `rank` in layer `z`: its indices along x and y.
    fn cell(&self, rank: u32, z: u64) -> (u64, u64) {
        let q = self.cells();
        let (x, y) = (u64::from(rank) % q, u64::from(rank) / q);
        ((x + z) % q, (y + q - z) % q)
    }
    /// Rows in the cell of `rank` in layer `z`.
    fn rows(&self, rank: u32, z: u64) -> u64 {
        let (_, cy) = self.cell(rank, z);
        let height = self.cell_start(cy + 1) - self.cell_start(cy);
        height * (self.cell_start(z + 1) - self.cell_start(z))
    }
    fn full(&self, rank: u32, piece: u64) -> (u64, u64) {
        let (from, to) = self.share(rank);
        let at = from * POINT + piece * self.buffer;
        (at, self.buffer.min(to * POINT - at))
    }
    fn simple(&self, rank: u32, mut piece: u64) -> (u64, u64) {
        let mut z = 0;
        while piece >= self.rows(rank, z) {
            piece -= self.rows(rank, z);
            z += 1;
        }
        let (cx, cy) = self.cell(rank, z);
        let height = self.cell_start(cy + 1) - self.cell_start(cy);
        let (j, k) = (self.cell_start(cy) + piece % height, self.cell_start(z) + piece / height);
        let (from, to) = (self.cell_start(cx), self.cell_start(cx + 1));
        (POINT * ((k * self.side + j) * self.side + from), POINT * (to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOR: Ior = Ior {
        ranks: 1,
        block: 1,
        transfer: 1,
        segments: 1,
        op: Op::Write,
        compute: Duration::ZERO,
        collective: false,
        repeat: false,
    };

    #[test]
    fn ranks_that_gather_begin_each_segment_together() {
        let ior = Ior { ranks: 2, block: 2, transfer: 1, segments: 2, collective: true, ..IOR };
        let mut ranks = Ranks::new(Program::Ior(ior), 0, 8).unwrap();
        assert!(ranks.gathers(0) && ranks.gather(0).is_empty());
        assert_eq!(ranks.gather(1), [0, 1]);
        for rank in [0, 1, 0, 1] {
            ranks.draw(rank);
        }
        assert!(ranks.gathers(0), "the second segment");
        assert_eq!((ranks.gather(1).len(), ranks.gather(0)), (0, vec![1, 0]));
        for rank in [0, 1, 0, 1] {
            ranks.draw(rank);
        }
        assert!(!ranks.gathers(0), "nobody waits after the last");
    }

    /// All requests of all ranks cover the file exactly once.
    fn assert_covers(program: Program) {
        let mut ranks = Ranks::new(program, 0, u64::MAX).unwrap();
        let mut pieces = Vec::new();
        for rank in 0..program.ranks() {
            while let Some((_, offset, len, _)) = ranks.draw(rank) {
                pieces.push((offset, len));
            }
        }
        pieces.sort_unstable();
        let mut end = 0;
        for (offset, len) in pieces {
            assert_eq!(offset, end);
            end += len;
        }
        assert_eq!(end, program.bytes());
    }

    #[test]
    fn ior_covers_its_file() {
        let ior = Ior { ranks: 3, block: 1000, transfer: 300, segments: 4, op: Op::Write, ..IOR };
        assert_covers(Program::Ior(ior));
    }

    #[test]
    fn ior_segments_are_where_the_options_say() {
        let ior = Ior { ranks: 4, block: 2048, transfer: 1024, segments: 2, op: Op::Read, ..IOR };
        let mut ranks = Ranks::new(Program::Ior(ior), 0, 1 << 30).unwrap();
        let offsets: Vec<u64> = std::iter::from_fn(|| ranks.draw(1)).map(|r| r.1).collect();
        assert_eq!(offsets, [2048, 3072, 8192 + 2048, 8192 + 3072]);
    }

    #[test]
    fn btio_covers_its_file_in_both_kinds() {
        for (side, buffer) in [(12, 0), (12, 4096), (13, 0), (13, 1000)] {
            let compute = Duration::ZERO;
            assert_covers(Program::Btio(Btio {
                ranks: 9,
                side,
                dumps: 2,
                buffer,
                compute,
                collective: false,
                repeat: false,
            }));
        }
    }

    #[test]
    fn btio_class_sizes_are_the_published_ones() {
        // NPB: 40 dumps of 40 bytes a point: 0.42, 1.70, 6.80 GB.
        for (side, gb) in [(64, 0.42), (102, 1.70), (162, 6.80)] {
            let bt = Btio {
                ranks: 16,
                side,
                dumps: 40,
                buffer: 0,
                compute: Duration::ZERO,
                collective: false,
                repeat: false,
            };
            assert!((Program::Btio(bt).bytes() as f64 / 1e9 - gb).abs() < 0.01);
            // simple: rows of 40 · N / √P bytes, where that divides.
            if side % 4 == 0 {
                assert_eq!(bt.simple(5, 0).1, 40 * side / 4);
            }
        }
    }
}
