//! The atomics of the crate: the standard library's, or loom's under `cfg(quota_loom)`.
//!
//! Floor 0. Invariant: no other module names an atomic type, so every interleaving can be explored by loom.

#[cfg(not(quota_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(quota_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use std::sync::Arc;

/// An `Arc` that can be read and swapped by many threads at once.
///
/// In ordinary builds it is [`arc_swap::ArcSwapOption`], whose loads and swaps are lock-free. Under loom it is an
/// ideal cell behind loom's mutex: loom then explores what the crate builds on the cell, not the cell itself.
#[cfg(not(quota_loom))]
pub(crate) struct ArcCell<T>(arc_swap::ArcSwapOption<T>);

#[cfg(not(quota_loom))]
impl<T> ArcCell<T> {
    pub(crate) const fn empty() -> Self {
        ArcCell(arc_swap::ArcSwapOption::const_empty())
    }

    pub(crate) fn new(value: Arc<T>) -> Self {
        ArcCell(arc_swap::ArcSwapOption::new(Some(value)))
    }

    pub(crate) fn load(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    /// Calls `read` with the value of this moment, without touching its reference count.
    pub(crate) fn with<R>(&self, read: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        read(self.0.load().as_ref())
    }

    pub(crate) fn store(&self, value: Option<Arc<T>>) {
        self.0.store(value);
    }

    /// Puts `new` in place if the cell still holds `current` (the same allocation); tells whether it did.
    pub(crate) fn swap_if(&self, current: Option<&Arc<T>>, new: Arc<T>) -> bool {
        let expected = current.map_or(std::ptr::null(), Arc::as_ptr);
        let before = self.0.compare_and_swap(expected, Some(new));
        same(before.as_ref(), current)
    }
}

#[cfg(quota_loom)]
pub(crate) struct ArcCell<T>(loom::sync::Mutex<Option<Arc<T>>>);

#[cfg(quota_loom)]
impl<T> ArcCell<T> {
    pub(crate) fn empty() -> Self {
        ArcCell(loom::sync::Mutex::new(None))
    }

    pub(crate) fn new(value: Arc<T>) -> Self {
        ArcCell(loom::sync::Mutex::new(Some(value)))
    }

    pub(crate) fn load(&self) -> Option<Arc<T>> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn with<R>(&self, read: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        let value = self.load();
        read(value.as_ref())
    }

    pub(crate) fn store(&self, value: Option<Arc<T>>) {
        *self.0.lock().unwrap() = value;
    }

    pub(crate) fn swap_if(&self, current: Option<&Arc<T>>, new: Arc<T>) -> bool {
        let mut cell = self.0.lock().unwrap();
        let same = same(cell.as_ref(), current);
        if same {
            *cell = Some(new);
        }
        same
    }
}

/// An `Arc` that one thread at a time replaces and others look at; nobody waits: who would have to is told so.
///
/// A look beside a replacement finds nothing, a replacement beside a look is not made; looks do not disturb each other.
#[cfg(not(quota_loom))]
pub(crate) struct TryCell<T>(parking_lot::RwLock<Option<Arc<T>>>);

/// The right to replace what is in a [`TryCell`], until it is dropped.
#[cfg(not(quota_loom))]
pub(crate) struct Room<'a, T>(parking_lot::RwLockWriteGuard<'a, Option<Arc<T>>>);

#[cfg(not(quota_loom))]
impl<T> Room<'_, T> {
    /// Puts `new` in place and gives what was there.
    pub(crate) fn replace(mut self, new: Arc<T>) -> Option<Arc<T>> {
        self.0.replace(new)
    }
}

#[cfg(not(quota_loom))]
impl<T> TryCell<T> {
    pub(crate) fn empty() -> Self {
        TryCell(parking_lot::RwLock::new(None))
    }

    /// What is there; `None` if nothing is, or if it is being replaced.
    pub(crate) fn try_load(&self) -> Option<Arc<T>> {
        self.0.try_read()?.clone()
    }

    /// Calls `look` with what is there, without touching its reference count, unless it is being replaced.
    pub(crate) fn try_with(&self, look: impl FnOnce(&Arc<T>)) {
        if let Some(Some(there)) = self.0.try_read().as_deref() {
            look(there);
        }
    }

    /// The right to replace what is there; `None` if somebody is looking.
    pub(crate) fn try_room(&self) -> Option<Room<'_, T>> {
        self.0.try_write().map(Room)
    }
}

/// Under loom the lock's word is loom's. Its own lock would not do: there whoever is about to try waits for the other.
#[cfg(quota_loom)]
pub(crate) struct TryCell<T> {
    /// How many look, and `REPLACING` while one replaces.
    users: AtomicU32,
    there: std::sync::Mutex<Option<Arc<T>>>,
}

#[cfg(quota_loom)]
impl<T> TryCell<T> {
    const REPLACING: u32 = 1 << 16;

    pub(crate) fn empty() -> Self {
        TryCell { users: AtomicU32::new(0), there: std::sync::Mutex::new(None) }
    }

    pub(crate) fn try_load(&self) -> Option<Arc<T>> {
        // ORDERING: acquire pairs with the release in `Room`: what was put there comes with all before it.
        let there = match self.users.fetch_add(1, Ordering::Acquire) < Self::REPLACING {
            true => self.there.lock().unwrap().clone(),
            false => None,
        };
        // ORDERING: release pairs with the acquire in `try_room`: the look is over.
        self.users.fetch_sub(1, Ordering::Release);
        there
    }

    pub(crate) fn try_room(&self) -> Option<Room<'_, T>> {
        // ORDERING: acquire, see `try_load`; relaxed on failure, which nothing follows from.
        self.users.compare_exchange(0, Self::REPLACING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Room(self))
    }
}

#[cfg(quota_loom)]
pub(crate) struct Room<'a, T>(&'a TryCell<T>);

#[cfg(quota_loom)]
impl<T> Room<'_, T> {
    pub(crate) fn replace(self, new: Arc<T>) -> Option<Arc<T>> {
        self.0.there.lock().unwrap().replace(new)
    }
}

#[cfg(quota_loom)]
impl<T> Drop for Room<'_, T> {
    fn drop(&mut self) {
        // ORDERING: release, see `try_load`.
        self.0.users.fetch_sub(TryCell::<T>::REPLACING, Ordering::Release);
    }
}

/// A place that is filled once; whoever comes later finds what the first put there. Both are lock-free.
#[cfg(not(quota_loom))]
pub(crate) struct OnceBox<T>(once_cell::race::OnceBox<T>);

#[cfg(not(quota_loom))]
impl<T> OnceBox<T> {
    pub(crate) const fn empty() -> Self {
        OnceBox(once_cell::race::OnceBox::new())
    }

    /// What was put there; with it comes all that happened before.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Puts a value there if none is; tells whether it did.
    pub(crate) fn set(&self, value: Box<T>) -> bool {
        self.0.set(value).is_ok()
    }
}

/// Under loom the flag is loom's, and the value goes with it: nothing that loom could interleave lies between the two.
#[cfg(quota_loom)]
pub(crate) struct OnceBox<T> {
    set: AtomicU32,
    value: std::sync::OnceLock<Box<T>>,
}

#[cfg(quota_loom)]
impl<T> OnceBox<T> {
    pub(crate) fn empty() -> Self {
        OnceBox { set: AtomicU32::new(0), value: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        // ORDERING: acquire pairs with the release in `set`.
        if self.set.load(Ordering::Acquire) == 0 { None } else { self.value.get().map(|value| &**value) }
    }

    pub(crate) fn set(&self, value: Box<T>) -> bool {
        // ORDERING: release and acquire, as in `get`; of two that set, the second sees what the first did.
        let first = self.set.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        first && self.value.set(value).is_ok()
    }
}

impl<T> OnceBox<T> {
    /// What is there, made now if nothing was. Of two that make at once, what the first made stays.
    #[inline]
    pub(crate) fn get_or_make(&self, make: impl Fn() -> T) -> &T {
        match self.get() {
            Some(value) => value,
            None => self.make(make),
        }
    }

    #[cold]
    fn make(&self, make: impl Fn() -> T) -> &T {
        loop {
            self.set(Box::new(make()));
            if let Some(value) = self.get() {
                return value;
            }
        }
    }
}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        OnceBox::empty()
    }
}

impl<T> std::fmt::Debug for OnceBox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.get().is_some() { "OnceBox(set)" } else { "OnceBox(empty)" })
    }
}

impl<T> std::fmt::Debug for ArcCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArcCell")
    }
}

fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// A queue that any thread adds to, in the order of the additions.
///
/// In ordinary builds crossbeam's: who takes out may wait for the two instructions between which another claims a slot and
/// fills it, who adds, for those between which another adds the next block of 31. Under loom an ideal queue behind
/// loom's mutex.
#[cfg(not(quota_loom))]
pub(crate) struct Queue<T>(crossbeam::queue::SegQueue<T>);

#[cfg(not(quota_loom))]
impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue(crossbeam::queue::SegQueue::new())
    }

    pub(crate) fn push(&self, value: T) {
        self.0.push(value);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(quota_loom)]
pub(crate) struct Queue<T>(loom::sync::Mutex<std::collections::VecDeque<T>>);

#[cfg(quota_loom)]
impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue(loom::sync::Mutex::new(std::collections::VecDeque::new()))
    }

    pub(crate) fn push(&self, value: T) {
        self.0.lock().unwrap().push_back(value);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.lock().unwrap().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

/// Something that one thread at a time uses, by an agreement made elsewhere; a mutex that is never found locked.
#[cfg(not(quota_loom))]
pub(crate) struct Alone<T>(parking_lot::Mutex<T>);

#[cfg(not(quota_loom))]
impl<T> Alone<T> {
    pub(crate) fn new(value: T) -> Self {
        Alone(parking_lot::Mutex::new(value))
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.0.lock())
    }
}

#[cfg(quota_loom)]
pub(crate) struct Alone<T>(loom::sync::Mutex<T>);

#[cfg(quota_loom)]
impl<T> Alone<T> {
    pub(crate) fn new(value: T) -> Self {
        Alone(loom::sync::Mutex::new(value))
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.0.try_lock().expect("used by one thread at a time"))
    }
}

/// A mutex that is tried first: who finds it taken goes elsewhere.
#[cfg(not(quota_loom))]
pub(crate) type TryLock<T> = parking_lot::Mutex<T>;

/// Under loom the lock's word is loom's. Its own lock would not do: there whoever is about to try waits for the other.
#[cfg(quota_loom)]
pub(crate) struct TryLock<T> {
    /// 1 while somebody has it.
    taken: AtomicU32,
    value: std::sync::Mutex<T>,
}

#[cfg(quota_loom)]
impl<T> TryLock<T> {
    pub(crate) fn new(value: T) -> Self {
        TryLock { taken: AtomicU32::new(0), value: std::sync::Mutex::new(value) }
    }

    pub(crate) fn try_lock(&self) -> Option<impl std::ops::DerefMut<Target = T>> {
        // ORDERING: acquire pairs with the release in `Word::drop`; relaxed on failure, which nothing follows from.
        self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Taken { value: self.value.lock().unwrap(), _word: Word(&self.taken) })
    }

    pub(crate) fn lock(&self) -> impl std::ops::DerefMut<Target = T> {
        loop {
            if let Some(taken) = self.try_lock() {
                return taken;
            }
            spin();
        }
    }
}

/// What a `TryLock` that is taken holds. The value is let go of before the word: fields are dropped in their order.
#[cfg(quota_loom)]
struct Taken<'a, T> {
    value: std::sync::MutexGuard<'a, T>,
    _word: Word<'a>,
}

#[cfg(quota_loom)]
struct Word<'a>(&'a AtomicU32);

#[cfg(quota_loom)]
impl Drop for Word<'_> {
    fn drop(&mut self) {
        // ORDERING: release, see `try_lock`.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(quota_loom)]
impl<T> std::ops::Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(quota_loom)]
impl<T> std::ops::DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// The waker of the one task that waits for something.
#[cfg(not(quota_loom))]
#[derive(Default)]
pub(crate) struct WakerCell(atomic_waker::AtomicWaker);

#[cfg(quota_loom)]
#[derive(Default)]
pub(crate) struct WakerCell(loom::future::AtomicWaker);

impl WakerCell {
    /// Puts the waker there that [`wake`](WakerCell::wake) wakes, in place of an earlier one.
    pub(crate) fn register(&self, waker: &std::task::Waker) {
        #[cfg(not(quota_loom))]
        self.0.register(waker);
        #[cfg(quota_loom)]
        self.0.register_by_ref(waker);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}

/// A small number that tends to differ between threads; where to start looking for something free.
pub(crate) fn thread_hint() -> usize {
    #[cfg(quota_loom)]
    return 0;
    #[cfg(not(quota_loom))]
    {
        use std::sync::atomic::AtomicUsize;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // ORDERING: relaxed; only that the numbers differ matters.
            static HINT: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        HINT.try_with(|hint| *hint).unwrap_or(0)
    }
}

/// Tells the processor, or loom, that another thread has to move first.
pub(crate) fn spin() {
    #[cfg(not(quota_loom))]
    std::hint::spin_loop();
    #[cfg(quota_loom)]
    loom::thread::yield_now();
}

/// Leaves other threads so many turns.
pub(crate) fn spin_for(turns: u32) {
    #[cfg(not(quota_loom))]
    (0..turns).for_each(|_| std::hint::spin_loop());
    #[cfg(quota_loom)]
    {
        let _ = turns;
        loom::thread::yield_now();
    }
}

/// Backs off after a failed swap, longer with each failure, and yields the processor after about a microsecond.
pub(crate) fn pause(backoff: &crossbeam::utils::Backoff) {
    #[cfg(not(quota_loom))]
    backoff.snooze();
    #[cfg(quota_loom)]
    {
        let _ = backoff;
        loom::thread::yield_now();
    }
}
