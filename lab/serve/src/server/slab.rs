//! Connections by number. The number of a removed connection is reused.

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(token) => {
                self.entries[token] = Some(value);
                token
            }
            None => {
                self.entries.push(Some(value));
                self.entries.len() - 1
            }
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, token: usize) -> Option<&mut T> {
        self.entries.get_mut(token)?.as_mut()
    }

    /// # Panics
    /// No entry has this number.
    pub(crate) fn remove(&mut self, token: usize) -> T {
        let value = self.entries[token].take().expect("it is there");
        self.free.push(token);
        value
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// The numbers in use.
    pub(crate) fn tokens(&self) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(token, entry)| entry.as_ref().map(|_| token)).collect()
    }
}
