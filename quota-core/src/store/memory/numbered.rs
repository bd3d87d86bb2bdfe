//! Numbered: one copy of equal slices (names, lists of columns), each under a number that takes four bytes where it is used.
//!
//! Floor 2. Invariant: two slices have the same number if and only if they are equal, by their elements and not by a hash;
//! what nobody has any more is let go of.

use std::hash::Hash;

use hashbrown::HashTable;

/// Slices by number. They lie one after the other: most are names of some twenty bytes, on which an allocation each would
/// take as much again.
pub(super) struct Numbered<T> {
    elements: Vec<T>,
    /// By number.
    slices: Vec<Slice>,
    /// Numbers that nobody has.
    free: Vec<u32>,
    numbers: HashTable<u32>,
    /// Elements of slices that nobody has.
    unused: usize,
    keys: ahash::RandomState,
}

#[derive(Clone, Copy)]
struct Slice {
    from: usize,
    len: u32,
    /// How many have its number.
    uses: u32,
}

const _: () = assert!(size_of::<Slice>() <= 16);

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        let (elements, slices, free) = (Vec::new(), Vec::new(), Vec::new());
        Numbered { elements, slices, free, numbers: HashTable::new(), unused: 0, keys: ahash::RandomState::new() }
    }
}

impl Slice {
    fn of<T>(self, elements: &[T]) -> &[T] {
        &elements[self.from..][..self.len as usize]
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    pub(super) fn get(&self, number: u32) -> &[T] {
        self.slices[number as usize].of(&self.elements)
    }

    /// The number of a slice, if somebody has it.
    pub(super) fn find(&self, slice: &[T]) -> Option<u32> {
        self.numbers.find(self.keys.hash_one(slice), |number| self.get(*number) == slice).copied()
    }

    /// The number of a slice, for one more who has it.
    pub(super) fn take(&mut self, slice: &[T]) -> u32 {
        let number = self.find(slice).unwrap_or_else(|| self.add(slice));
        self.slices[number as usize].uses += 1;
        number
    }

    fn add(&mut self, slice: &[T]) -> u32 {
        let new = Slice { from: self.elements.len(), len: slice.len() as u32, uses: 0 };
        self.elements.extend_from_slice(slice);
        let number = match self.free.pop() {
            Some(number) => {
                self.slices[number as usize] = new;
                number
            }
            None => {
                self.slices.push(new);
                self.slices.len() as u32 - 1
            }
        };
        let Numbered { elements, slices, keys, numbers, .. } = self;
        let hash = |number: &u32| keys.hash_one(slices[*number as usize].of(elements));
        numbers.insert_unique(hash(&number), number, hash);
        number
    }

    /// Lets go of a number that was taken.
    pub(super) fn release(&mut self, number: u32) {
        let Numbered { elements, slices, free, numbers, unused, keys } = self;
        let slice = &mut slices[number as usize];
        slice.uses -= 1;
        if slice.uses > 0 {
            return;
        }
        let hash = keys.hash_one(slice.of(elements));
        if let Ok(entry) = numbers.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        *unused += slice.len as usize;
        free.push(number);
        // Moving all costs no more steps than there are elements that came and went since it was last done.
        if *unused > slices.len().max(elements.len() - *unused) {
            self.close_up();
        }
    }

    /// Moves the slices that somebody has together.
    fn close_up(&mut self) {
        let mut elements = Vec::with_capacity(self.elements.len() - self.unused);
        for slice in self.slices.iter_mut().filter(|slice| slice.uses > 0) {
            let from = elements.len();
            elements.extend_from_slice(slice.of(&self.elements));
            slice.from = from;
        }
        (self.elements, self.unused) = (elements, 0);
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn equal_slices_have_one_number_as_long_as_somebody_has_it() {
        let mut numbered = Numbered::default();
        let (a, b, none) = (numbered.take(b"a"), numbered.take(b"b"), numbered.take(b""));
        assert!(a != b && b != none && a != none);
        assert_eq!([numbered.take(b"a"), numbered.take(b"")], [a, none]);
        assert_eq!([b"a", b"b", b"c"].map(|name| numbered.find(name)), [Some(a), Some(b), None]);
        numbered.release(a);
        assert_eq!(numbered.find(b"a"), Some(a), "another has it");
        numbered.release(a);
        assert_eq!(numbered.find(b"a"), None);
        assert_eq!(numbered.take(b"c"), a, "a number is given again");
        assert_eq!([a, b, none].map(|number| numbered.get(number).to_vec()), [&b"c"[..], b"b", b""]);
    }

    #[test]
    fn names_that_come_and_go_take_no_more_than_those_that_are_there() {
        let mut numbered = Numbered::default();
        let mut there: HashMap<u64, (u32, String)> = HashMap::new();
        let mut seed = 7u64;
        for turn in 0..60_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Up to 600 of them at first, up to 60 then.
            let place = (seed >> 33) % if turn < 20_000 { 600 } else { 60 };
            if let Some((number, name)) = there.remove(&place) {
                assert_eq!(numbered.get(number), name.as_bytes());
                numbered.release(number);
            } else {
                let name = format!("name {}", seed >> 40);
                there.insert(place, (numbered.take(name.as_bytes()), name));
            }
            let (live, slices) = (numbered.elements.len() - numbered.unused, numbered.slices.len());
            assert!(slices <= 600 && numbered.unused <= live.max(slices) + 20, "{live}, {slices}");
        }
        assert_eq!(numbered.numbers.len(), there.len());
        for (number, name) in there.values() {
            assert_eq!((numbered.get(*number), numbered.find(name.as_bytes())), (name.as_bytes(), Some(*number)));
        }
    }
}
