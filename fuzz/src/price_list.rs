//! A price list of any text: an error, or models whose worst case can be reckoned.

use quota_core::policy::price::Ask;
use quota_core::policy::price_list::PriceList;

/// Reads a price list.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(list) = PriceList::litellm(text) else { return };
    for (name, model) in list.models() {
        assert!(list.get(name).is_some());
        let _ = model.price.worst_case(&Ask { input: 1000, output: 1000, ..Ask::default() });
    }
}
