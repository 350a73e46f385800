//! Seeded choices.

/// How much is random. By default nothing is: first come, first served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    /// Whether the next ready thread, and the free CPU that it runs on, are drawn at random.
    pub drawn_order: bool,
    /// The thread is preempted at one in this many preemption points. 0: never.
    pub preempt_one_in: u64,
    /// One in this many parks ends early. 0: never.
    pub early_one_in: u64,
    /// One in this many thread spawns fails. 0: never.
    pub spawn_fails_one_in: u64,
    /// One in this many requests for memory is refused, where that is no reason to abort. 0: never.
    pub memory_fails_one_in: u64,
    /// One in this many preemption points of an engine's thread stalls it for milliseconds. 0: never.
    pub stall_one_in: u64,
    /// One in this many wakes is up to a millisecond late. 0: never.
    pub late_one_in: u64,
    /// One in this many times, the clock jumps by up to 5 ms over the events in between. 0: never.
    pub jump_one_in: u64,
    /// The time from a wake until the woken thread competes for a CPU.
    pub wake_ns: u64,
    /// The time from the spawn of a thread until it competes for a CPU.
    pub spawn_ns: u64,
    /// The CPU time that a worker needs to park, after its last look for work.
    pub park_ns: u64,
    /// How long a computing thread keeps a CPU that others want. 0: until it finishes.
    pub slice_ns: u64,
    /// Whether a thread that is ready waits for the CPU on which it ran last, until it has parked or
    /// dozed: a system that balances its CPUs late.
    pub stays_on_cpu: bool,
}

impl Chaos {
    /// The default, for constants: nothing is random, and threads start at once.
    pub const STEADY: Chaos = Chaos {
        drawn_order: false,
        preempt_one_in: 0,
        early_one_in: 0,
        spawn_fails_one_in: 0,
        memory_fails_one_in: 0,
        stall_one_in: 0,
        late_one_in: 0,
        jump_one_in: 0,
        wake_ns: 0,
        spawn_ns: 0,
        park_ns: 0,
        slice_ns: 0,
        stays_on_cpu: false,
    };
}

/// A xorshift64* generator.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Chance {
        // Neighbouring seeds should start differently, and the state must not be zero.
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            let _ = chance.draw();
        }
        chance
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number below `n`, which is not zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// True once in `n` times; never if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// A random element.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
