//! Records held small: a recording has millions of them, alike in all but their times and numbers.
//!
//! What repeats from record to record (names, grids, streams, shapes) is held once and referred to by its number. Times and numbers
//! are held as differences to the record before, in as many bytes as they need: seven bits to a byte, the sign in the lowest one, the
//! eighth bit set where more follow (LEB128 of zigzag numbers, as in Protocol Buffers). A kernel takes about 9 bytes instead of 80.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher as _};

/// Numbers that a record may have.
pub const MOST_NUMBERS: usize = 4;
/// Records from one whole one to the next: so many are read, at most, to find one of them.
const BLOCK: usize = 32;

/// What a [`Table`] holds.
pub trait Record: Copy {
    /// What repeats.
    type Kind: Copy + Eq + Hash;
    /// How many numbers each has.
    const NUMBERS: usize;

    /// Start, duration and numbers that grow from record to record.
    fn split(&self) -> (Self::Kind, [i64; MOST_NUMBERS]);
    /// The record again.
    fn join(kind: Self::Kind, numbers: [i64; MOST_NUMBERS]) -> Self;
}

/// Records in order.
#[derive(Clone)]
pub struct Table<R: Record> {
    bytes: Vec<u8>,
    /// Where each block begins.
    blocks: Vec<usize>,
    len: usize,
    kinds: Vec<R::Kind>,
    /// Kinds by their hash: no second copy of them.
    index: HashMap<u64, u32>,
    /// The last record.
    last: Coded,
}

/// A record as it is held: the number of its kind and its own numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Coded {
    kind: u32,
    numbers: [i64; MOST_NUMBERS],
}

/// Durations scatter about no trend, so their differences would be longer than they are.
const fn is_difference(number: usize) -> bool {
    number != 1
}

fn put(bytes: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 128 {
        bytes.push((rest & 127) as u8 | 128);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn take(bytes: &[u8], place: &mut usize) -> i64 {
    let (mut value, mut shift) = (0_u64, 0);
    while let Some(byte) = bytes.get(*place) {
        *place += 1;
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if *byte < 128 || shift > 63 {
            break;
        }
    }
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

impl<R: Record> Table<R> {
    /// An empty table.
    pub fn new() -> Self {
        let (bytes, blocks, kinds) = (Vec::new(), Vec::new(), Vec::new());
        Self { bytes, blocks, len: 0, kinds, index: HashMap::new(), last: Coded::default() }
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// None?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many kinds of records there are.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Adds a record at the end.
    pub fn push(&mut self, record: R) {
        let (kind, numbers) = record.split();
        let kind = self.number_of(kind);
        self.append(Coded { kind, numbers });
    }

    /// The number of a kind, new or known. Two kinds with one hash take neighbouring slots.
    fn number_of(&mut self, kind: R::Kind) -> u32 {
        if self.kinds.get(self.last.kind as usize) == Some(&kind) {
            return self.last.kind;
        }
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        let mut slot = hasher.finish();
        loop {
            match self.index.get(&slot) {
                Some(&number) if self.kinds[number as usize] == kind => return number,
                Some(_) => slot = slot.wrapping_add(1),
                None => {
                    let number = self.kinds.len() as u32;
                    self.kinds.push(kind);
                    self.index.insert(slot, number);
                    return number;
                }
            }
        }
    }

    fn append(&mut self, record: Coded) {
        let before = if self.len.is_multiple_of(BLOCK) {
            self.blocks.push(self.bytes.len());
            Coded::default()
        } else {
            self.last
        };
        put(&mut self.bytes, i64::from(record.kind) - i64::from(before.kind));
        for (i, number) in record.numbers.into_iter().enumerate().take(R::NUMBERS) {
            let from = if is_difference(i) { before.numbers[i] } else { 0 };
            put(&mut self.bytes, number.wrapping_sub(from));
        }
        self.last = record;
        self.len += 1;
    }

    /// All records, in order.
    pub fn iter(&self) -> Cursor<'_, R> {
        Cursor { table: self, next: 0, place: 0, record: Coded::default() }
    }

    /// One record. A [`Cursor`] finds the next ones sooner.
    ///
    /// # Panics
    ///
    /// If there is none at this place, as with a list.
    pub fn at(&self, index: usize) -> R {
        self.iter().at(index)
    }

    /// How many records come first of which a thing is true, where it is true of none behind one of which it is not.
    pub fn partition_point(&self, mut is_true: impl FnMut(&R) -> bool) -> usize {
        let mut cursor = self.iter();
        let (mut low, mut high) = (0, self.blocks.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_true(&cursor.at(middle * BLOCK)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The block before the first that begins with one of which it is not true.
        let from = low.saturating_sub(1) * BLOCK;
        let until = (low * BLOCK).min(self.len);
        (from..until).find(|&i| !is_true(&cursor.at(i))).unwrap_or(until)
    }

    /// Puts the records in order; equal ones stay as they came.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&R) -> K) {
        if self.iter().is_sorted_by_key(|r| key(&r)) {
            return;
        }
        let mut order: Vec<(K, u32)> = self.iter().enumerate().map(|(i, r)| (key(&r), i as u32)).collect();
        order.sort_unstable();
        let mut sorted = Self::new();
        sorted.bytes.reserve_exact(self.bytes.len());
        let mut cursor = self.iter();
        for (_, place) in order {
            cursor.at(place as usize);
            sorted.append(cursor.record);
        }
        (self.bytes, self.blocks, self.last) = (sorted.bytes, sorted.blocks, sorted.last);
    }

    /// Leaves out the records of which a thing is not true; says how many those are.
    pub fn retain(&mut self, is_true: impl Fn(&R) -> bool) -> usize {
        let before = self.len;
        if !self.iter().all(|r| is_true(&r)) {
            *self = self.iter().filter(is_true).collect();
        }
        before - self.len
    }

    /// Memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        // A slot of the index is a hash, a number and a byte of control, and an eighth of the slots is free.
        let slot = 20;
        self.bytes.capacity()
            + self.blocks.capacity() * size_of::<usize>()
            + self.kinds.capacity() * size_of::<R::Kind>()
            + self.index.capacity() * slot
    }
}

impl<R: Record> Default for Table<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Record> Extend<R> for Table<R> {
    fn extend<I: IntoIterator<Item = R>>(&mut self, records: I) {
        records.into_iter().for_each(|r| self.push(r));
    }
}

impl<R: Record> FromIterator<R> for Table<R> {
    fn from_iter<I: IntoIterator<Item = R>>(records: I) -> Self {
        let mut table = Self::new();
        table.extend(records);
        table
    }
}

impl<R: Record> From<Vec<R>> for Table<R> {
    fn from(records: Vec<R>) -> Self {
        records.into_iter().collect()
    }
}

impl<'a, R: Record> IntoIterator for &'a Table<R> {
    type Item = R;
    type IntoIter = Cursor<'a, R>;

    fn into_iter(self) -> Cursor<'a, R> {
        self.iter()
    }
}

impl<R: Record + PartialEq> PartialEq for Table<R> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<R: Record + fmt::Debug> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A place in a table: records one after the other, or at any place, sooner where that lies a little behind the last one.
#[derive(Clone)]
pub struct Cursor<'a, R: Record> {
    table: &'a Table<R>,
    /// Records up to the one that was read last.
    next: usize,
    /// Where the next one stands.
    place: usize,
    record: Coded,
}

impl<R: Record> fmt::Debug for Cursor<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "before record {} of {}", self.next, self.table.len)
    }
}

impl<R: Record> Cursor<'_, R> {
    fn step(&mut self) {
        let before = if self.next.is_multiple_of(BLOCK) { Coded::default() } else { self.record };
        let bytes = &self.table.bytes;
        let kind = i64::from(before.kind).wrapping_add(take(bytes, &mut self.place));
        self.record.kind = kind as u32;
        for i in 0..R::NUMBERS {
            let from = if is_difference(i) { before.numbers[i] } else { 0 };
            self.record.numbers[i] = from.wrapping_add(take(bytes, &mut self.place));
        }
        self.next += 1;
    }

    /// One record.
    ///
    /// # Panics
    ///
    /// If there is none at this place, as with a list.
    pub fn at(&mut self, index: usize) -> R {
        assert!(index < self.table.len, "record {index} of {}", self.table.len);
        let block = index / BLOCK;
        if self.next > index + 1 || self.next < block * BLOCK {
            (self.next, self.place) = (block * BLOCK, self.table.blocks[block]);
        }
        while self.next <= index {
            self.step();
        }
        self.record()
    }

    fn record(&self) -> R {
        R::join(self.table.kinds[self.record.kind as usize], self.record.numbers)
    }

    /// The number of the kind of the record that was read last.
    pub fn kind(&self) -> usize {
        self.record.kind as usize
    }

    /// The record that comes next, which stays the next.
    pub fn peek(&self) -> Option<R> {
        self.clone().next()
    }
}

impl<R: Record> Iterator for Cursor<'_, R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        (self.next < self.table.len).then(|| {
            self.step();
            self.record()
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.table.len - self.next;
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Small(u8, [i64; 4]);

    impl Record for Small {
        type Kind = u8;
        const NUMBERS: usize = 4;
        fn split(&self) -> (u8, [i64; 4]) {
            (self.0, self.1)
        }
        fn join(kind: u8, numbers: [i64; 4]) -> Self {
            Self(kind, numbers)
        }
    }

    #[test]
    fn records_alike_take_few_bytes() {
        // 20 us apart, 3 us long, numbered one after the other: 3 + 2 + 1 + 1 bytes and one for the kind.
        let table: Table<Small> =
            (0..10_000).map(|i| Small((i % 3) as u8, [i * 20_000, 3_480, i, i])).collect();
        assert!(table.bytes.len() < 10_000 * 9, "{}", table.bytes.len());
        assert_eq!(table.kinds(), 3);
    }

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), -300_i64..300, Just(i64::MIN), Just(i64::MAX)]
    }

    proptest! {
        /// What goes in comes out, in order and at any place, whatever the numbers are.
        #[test]
        fn records_come_back(
            records in proptest::collection::vec((any::<u8>(), [any_number(), any_number(), any_number(), any_number()]), 0..100),
            places in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let records: Vec<Small> = records.into_iter().map(|(kind, numbers)| Small(kind, numbers)).collect();
            let mut table = Table::from(records.clone());
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), records.clone());
            if !records.is_empty() {
                let mut cursor = table.iter();
                for place in places {
                    let place = place.index(records.len());
                    prop_assert_eq!(cursor.at(place), records[place]);
                    prop_assert_eq!(cursor.peek(), records.get(place + 1).copied());
                }
            }
            let mut sorted = records;
            sorted.sort_by_key(|r| (r.1[0], r.0));
            table.sort_by_key(|r| (r.1[0], r.0));
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), sorted.clone());
            for bound in [i64::MIN, -5, 0, 5, i64::MAX] {
                prop_assert_eq!(table.partition_point(|r| r.1[0] < bound), sorted.partition_point(|r| r.1[0] < bound));
            }
        }
    }
}
