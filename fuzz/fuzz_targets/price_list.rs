//! A price list of any text: an error, or models whose worst case can be reckoned.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quota_core::policy::price::Ask;
use quota_core::policy::price_list::PriceList;

fuzz_target!(|text: &str| {
    let Ok(list) = PriceList::litellm(text) else { return };
    for (name, model) in list.models() {
        assert!(list.get(name).is_some());
        let _ = model.price.worst_case(&Ask { input: 1000, output: 1000, ..Ask::default() });
    }
});
