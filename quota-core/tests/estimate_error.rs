//! The heuristic's stated error, against the exact counts of `o200k_base` and `cl100k_base`.

#![cfg(feature = "tiktoken")]

use proptest::prelude::*;
use quota_core::estimate::{InputEstimate, Tokenizer, count_text};

/// The heuristic beside the exact count, for both encodings.
fn both(text: &str) -> [(&'static str, InputEstimate, u64); 2] {
    [("gpt-4o", Tokenizer::O200kBase), ("gpt-4", Tokenizer::Cl100kBase)].map(|(model, tokenizer)| {
        let exact = count_text(text, tokenizer, model);
        assert!(exact.exact, "{model} did not count {} bytes", text.len());
        (model, count_text(text, Tokenizer::Heuristic, model), exact.expected)
    })
}

fn shown(text: &str) -> String {
    text.chars().take(120).collect()
}

/// The reserve is at least `percent` of the exact count, and not above the byte bound.
fn assert_reserve(text: &str, percent: u64) {
    for (model, estimate, exact) in both(text) {
        assert!(estimate.reserve * 100 >= exact * percent, "{model}: {estimate:?} for {exact}: {:?}", shown(text));
        assert!(estimate.reserve <= text.len() as u64 + 1, "{model}: {estimate:?} for {} bytes", text.len());
        assert!(estimate.expected <= estimate.reserve, "{model}: {estimate:?}");
    }
}

const ENGLISH: &[&str] = &[
    "The gateway answers at once whether a request fits into the limits of its tenant. If it does, the amounts are held \
     until the model has answered, and whatever was not needed is given back to the same period. Nobody has to wait for a \
     clock to strike, and no request is counted twice, however often the client tries again.",
    "When the harbour froze in January, the fishermen repaired their nets in the old schoolhouse, drank far too much coffee, \
     and argued about whether the ice would hold a horse. It held two, as it turned out, and very nearly a third.",
    "fn settle(&mut self, used: u64) -> Result<Receipt, Error> {\n    let held = self.held.take().ok_or(Error::Ended)?;\n    \
     for limit in &self.limits {\n        limit.give_back(held.saturating_sub(used));\n    }\n    Ok(Receipt::new(held, used))\n}\n",
    "def reserve(tenant, amount):\n    account = accounts[tenant]\n    if account.used + amount > account.limit:\n        \
     raise QuotaError(\"no room\", retry_after=account.wait(amount))\n    account.used += amount\n    return Lease(tenant, amount)\n",
    "{\"tenant\":\"blue\",\"limits\":{\"rpm\":120,\"input_tpm\":200000},\"models\":[\"gpt-4o\",\"gpt-4.1\"],\"enabled\":true,\
     \"owner\":{\"name\":\"Ada\",\"email\":\"ada@example.org\"}}",
    "# Quotas\n\n* **Rates** refill all the time.\n* **Budgets** start again at midnight.\n\n| limit | amount |\n| --- | --- |\n\
     | `rpm` | 120 |\n| `daily_budget_usd` | 300 |\n\nSee [the reference](https://example.org/docs/limits#rates).\n",
];

const LANGUAGES: &[&str] = &[
    "Die Anfrage wird sofort beantwortet, und was nicht gebraucht wurde, fließt am Ende in denselben Zeitraum zurück. \
     Niemand muss warten, bis die Uhr schlägt, und keine Anfrage wird doppelt gezählt.",
    "La passerelle répond tout de suite si une requête tient dans les limites de son locataire. Ce qui n'a pas été \
     utilisé est rendu à la même période, et rien n'est compté deux fois.",
    "La pasarela contesta enseguida si una petición cabe en los límites de su inquilino. Lo que no se ha usado vuelve al \
     mismo período, y ninguna petición se cuenta dos veces.",
    "Il gateway risponde subito se una richiesta rientra nei limiti. Ciò che non è servito viene restituito allo stesso \
     periodo, e nessuna richiesta viene contata due volte.",
    "Brama odpowiada od razu, czy żądanie mieści się w limitach najemcy. To, czego nie zużyto, wraca do tego samego \
     okresu, a żadne żądanie nie jest liczone dwa razy, choćby klient próbował wielokrotnie.",
    "Yhdyskäytävä vastaa heti, mahtuuko pyyntö vuokralaisen rajoihin. Se, mitä ei tarvittu, palautetaan samalle \
     jaksolle, eikä yhtäkään pyyntöä lasketa kahdesti.",
    "Ağ geçidi, bir isteğin kiracının sınırlarına sığıp sığmadığını hemen yanıtlar. Kullanılmayan miktar aynı döneme geri \
     verilir ve hiçbir istek iki kez sayılmaz.",
    "Cổng trả lời ngay liệu một yêu cầu có nằm trong giới hạn của bên thuê hay không. Phần chưa dùng được trả lại cho cùng \
     một kỳ, và không yêu cầu nào bị tính hai lần.",
    "Шлюз сразу отвечает, помещается ли запрос в пределы арендатора. То, что не понадобилось, возвращается в тот же \
     период, и ни один запрос не считается дважды.",
    "Шлюз одразу відповідає, чи вміщується запит у межі орендаря. Те, що не знадобилося, повертається в той самий \
     період, і жоден запит не рахується двічі.",
    "Η πύλη απαντά αμέσως αν ένα αίτημα χωρά στα όρια του ενοικιαστή. Ό,τι δεν χρειάστηκε επιστρέφεται στην ίδια \
     περίοδο, και κανένα αίτημα δεν μετριέται δύο φορές.",
    "השער עונה מיד אם בקשה נכנסת במגבלות של הדייר. מה שלא נוצל חוזר לאותה תקופה, ואף בקשה אינה נספרת פעמיים.",
    "تجيب البوابة فورا عما إذا كان الطلب يدخل ضمن حدود المستأجر. وما لم يستخدم يعاد إلى الفترة نفسها، ولا يحسب أي طلب مرتين.",
    "गेटवे तुरंत बताता है कि अनुरोध किरायेदार की सीमाओं में समाता है या नहीं। जो उपयोग नहीं हुआ वह उसी अवधि में लौट आता है।",
    "เกตเวย์ตอบทันทีว่าคำขออยู่ในขีดจำกัดของผู้เช่าหรือไม่ ส่วนที่ไม่ได้ใช้จะถูกคืนให้กับช่วงเวลาเดิม และไม่มีคำขอใดถูกนับสองครั้ง",
    "网关立即回答请求是否在租户的限额之内。没有用完的数量会退回到同一个周期，任何请求都不会被计算两次。",
    "閘道立即回答請求是否在租戶的限額之內。沒有用完的數量會退回到同一個週期，任何請求都不會被計算兩次。",
    "ゲートウェイは、リクエストがテナントの上限に収まるかどうかをすぐに答えます。使われなかった分は同じ期間に戻り、二重に数えられることはありません。",
    "게이트웨이는 요청이 테넌트의 한도에 들어가는지 바로 답합니다. 사용하지 않은 양은 같은 기간으로 돌아가며 어떤 요청도 두 번 세지 않습니다.",
    "კარიბჭე მაშინვე პასუხობს, ეტევა თუ არა მოთხოვნა მოიჯარის საზღვრებში.",
];

const DATA: &[&str] = &[
    "10.4.17.200 - - [12/Mar/2026:08:15:42 +0000] \"GET /v1/items/48213 HTTP/1.1\" 200 5123 \"-\" \"curl/8.5\"\n",
    "48213,117.942,3\n7,0.25,1\n99120,880.001,9\n",
    "3f2504e0-4f89-41d3-9a0c-0305e82c3301\n7d444840-9dc0-11d1-b245-5ffdce74fad2\n",
    "dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZyBhbmQgcnVucyBhd2F5IGFnYWlu\n",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
    "\\u7f51\\u5173\\u7acb\\u5373\\u56de\\u7b54",
    "!function(e,t){\"use strict\";for(var n=0;n<e.length;n++)t[n]&&(e[n]=t[n](e[n]||{}))}(window,[]);",
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽🎉🚀✨🔥💯",
    "├── src\n│   ├── lib.rs\n│   └── main.rs\n└── Cargo.toml\n",
];

#[test]
fn prose_code_and_data_are_within_the_stated_error() {
    for text in ENGLISH.iter().chain(LANGUAGES).chain(DATA) {
        assert_reserve(text, 95);
        assert_reserve(&text.repeat(40), 95);
    }
}

#[test]
fn english_code_and_json_are_guessed_within_a_quarter() {
    for text in ENGLISH {
        for (model, estimate, exact) in both(&text.repeat(20)) {
            let (low, high) = (exact * 3 / 4, exact * 5 / 4);
            assert!((low..=high).contains(&estimate.expected), "{model}: {estimate:?} for {exact}: {}", shown(text));
        }
    }
}

#[test]
fn a_repeated_character_is_within_the_stated_error() {
    for c in ('\0'..='\u{17f}').chain(('\u{180}'..='\u{10ffff}').step_by(151)) {
        for times in [1, 2, 3, 100] {
            assert_reserve(&c.to_string().repeat(times), 95);
        }
    }
}

#[test]
fn two_characters_in_turn_are_within_the_stated_error() {
    for a in (1u8..127).step_by(2) {
        for b in 1u8..127 {
            assert_reserve(&format!("{}{}", a as char, b as char).repeat(60), 95);
        }
    }
}

/// The bound of the reserve for text composed to mislead: a quarter of the exact count.
#[test]
fn gibberish_of_one_script_is_within_a_factor_of_four() {
    let mut state = 88_172_645_463_325_252u64;
    let mut below = |bound: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % bound
    };
    let blocks = [
        (0x61, 26),
        (0x386, 72),
        (0x410, 64),
        (0x5D0, 27),
        (0x620, 43),
        (0x905, 100),
        (0xB85, 60),
        (0xE01, 90),
        (0x3041, 80),
        (0x4E00, 20_000),
        (0xAC00, 11_000),
    ];
    for (start, length) in blocks {
        for word in [2, 6, 12, 5000] {
            let letter = |index| match index % (word + 1) == word {
                true => ' ',
                false => char::from_u32(start + below(length)).unwrap(),
            };
            assert_reserve(&(0..1000).map(letter).collect::<String>(), 25);
        }
    }
}

#[test]
fn a_million_characters_take_linear_time() {
    // Quadratic work on a million characters would outlast any patience, so that ending at all is the test.
    for c in ["a", "A", " ", "\n", "^", "=", "0", "é", "你", "🙂", "\u{301}"] {
        let text = c.repeat(1_000_000);
        for tokenizer in [Tokenizer::Heuristic, Tokenizer::O200kBase, Tokenizer::Cl100kBase] {
            let estimate = count_text(&text, tokenizer, "gpt-4o");
            assert!(!estimate.exact || tokenizer != Tokenizer::Heuristic);
            assert!(estimate.reserve <= text.len() as u64 + 1);
        }
    }
}

proptest! {
    #[test]
    fn printable_ascii_at_random(text in "[ -~]{0,600}") {
        assert_reserve(&text, 95);
    }

    #[test]
    fn ascii_at_random(text in "[\\x00-\\x7f]{0,600}") {
        assert_reserve(&text, 95);
    }

    #[test]
    fn words_of_letters_at_random(text in "([a-z]{1,12} |[A-Z]{1,12} |[a-zA-Z0-9]{1,12}[,.;:_/-]?){0,80}") {
        assert_reserve(&text, 90);
    }

    #[test]
    fn base64_at_random(text in "[A-Za-z0-9+/]{0,600}") {
        assert_reserve(&text, 95);
    }

    #[test]
    fn code_points_at_random(text in proptest::collection::vec(any::<char>(), 0..300)) {
        assert_reserve(&String::from_iter(text), 95);
    }

    #[test]
    fn code_points_of_the_basic_plane_at_random(text in "[\\u{1}-\\u{d7ff}\\u{e000}-\\u{ffff}]{0,300}") {
        assert_reserve(&text, 95);
    }

    #[test]
    fn emoji_marks_and_tags_at_random(text in "([\\u{1f300}-\\u{1faff}]|[a-z][\\u{300}-\\u{36f}]{0,8}|[\\u{e0020}-\\u{e007f}]|[\\u{20000}-\\u{2a6df}]){0,200}") {
        assert_reserve(&text, 95);
    }

    #[test]
    fn prose_with_anything_inside(prose in 0..LANGUAGES.len(), at in 0usize..60, text in any::<String>()) {
        let mut mixed = LANGUAGES[prose].to_owned();
        let at = mixed.char_indices().nth(at).map_or(0, |(at, _)| at);
        mixed.insert_str(at, &text);
        assert_reserve(&mixed, 95);
    }
}
