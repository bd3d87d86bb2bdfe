//! How likely a token ends between two characters: the tables behind the heuristic's words and punctuation.
//!
//! Floor 1. Invariant: a digit `d` means that of a hundred occurrences of the pair, about `d²` are split.
//!
//! Counted with `o200k_base` and `cl100k_base` (equal weights) over public text: the Universal Declaration of Human
//! Rights in 15 languages of Latin script, Rust, JavaScript, Markdown, JSON and HTML, and random letters and
//! punctuation, so that pairs no language uses have the rate that chance gives them.

/// By the low five bits of either letter.
static LETTERS: [u16; 1024] = spread(&LETTER_DIGITS, 1);

/// By the places of both characters.
static MARKS: [u16; 1024] = spread(&MARK_DIGITS, 0);

/// Thousandths of a token that a pair of letters of ASCII adds.
pub(super) const fn letters(last: u8, letter: u8) -> u64 {
    LETTERS[((last & 31) as usize) << 5 | (letter & 31) as usize] as u64
}

/// Thousandths of a token that a pair of punctuation characters of ASCII adds.
pub(super) const fn marks(last: u8, mark: u8) -> u64 {
    MARKS[place(last) << 5 | place(mark)] as u64
}

/// The place of a punctuation character of ASCII among the 32 there are.
const fn place(byte: u8) -> usize {
    (match byte {
        b'!'..=b'/' => byte - b'!',
        b':'..=b'@' => byte - b':' + 15,
        b'['..=b'`' => byte - b'[' + 22,
        _ => byte.wrapping_sub(b'{').wrapping_add(28),
    } & 31) as usize
}

const fn spread<const N: usize>(digits: &[&[u8; N]; N], first: usize) -> [u16; 1024] {
    let mut table = [0; 1024];
    let mut row = 0;
    while row < N {
        let mut column = 0;
        while column < N {
            let digit = (digits[row][column] - b'0') as u16;
            table[(row + first) * 32 + column + first] = digit * digit * 10;
            column += 1;
        }
        row += 1;
    }
    table
}

/// Rows: the first letter, a to z; columns: the second.
#[rustfmt::skip]
const LETTER_DIGITS: [&[u8; 26]; 26] = [
    b"70109303431000718000301211",
    b"55772878459288499447499729",
    b"46272590481167278361579746",
    b"46852677497788389457579748",
    b"46304336674220753001832136",
    b"47763148498473278242388679",
    b"57883972588483489365688848",
    b"39971998398766389481487858",
    b"20002006820000116100908270",
    b"48875998955886587938499999",
    b"58993957675876799745676949",
    b"48821278487289277834479919",
    b"43852969488648338835489749",
    b"48212617566784479821566836",
    b"72217136571210429011021336",
    b"38772773595258338231488549",
    b"88889998899488983787198799",
    b"56441539496734268232568817",
    b"59473852596578348820455956",
    b"59443690498778349233696727",
    b"41211237465010729110967265",
    b"48781957398768589677878769",
    b"47863882488775589457994659",
    b"57675799599889849983999559",
    b"59687989899544439736999989",
    b"68883986597987699996697854",
];

/// Rows: the first character, in the order of ASCII; columns: the second.
#[rustfmt::skip]
const MARK_DIGITS: [&[u8; 32]; 32] = [
    b"16999983779686589919794789999999",
    b"86365788184051101594726517564869",
    b"37078989996899979999982999992999",
    b"99949996999896799999999799291999",
    b"96891986799656996979969898999999",
    b"99389178899599999989999999799999",
    b"94776828265058434586788325897758",
    b"11705123017917547699731696123596",
    b"96888854267071730785894738884779",
    b"99989796309495489965968699699999",
    b"96678958991769879949998789999999",
    b"93868868989558989999976899791999",
    b"97967986979607899960998899999999",
    b"88858868568570187499997799588899",
    b"96777977818866079775568797797998",
    b"91777777888737109559771688871999",
    b"96977678899878793899999799999989",
    b"39949735989959199036298999797999",
    b"91835556999979999800774899882998",
    b"97878383679388788441877699977889",
    b"75979978799486957792398699999999",
    b"96949998999999999999936899898999",
    b"91736826979739739999967628437999",
    b"93969968999998499599999599999999",
    b"96998784867062731767891647996619",
    b"99999996999979999999998692997999",
    b"97968976489385877899997698098699",
    b"99989999899394988899999779948989",
    b"90957959989969889999949599892629",
    b"98999998999969999979999499999099",
    b"97977687199074671886877499767699",
    b"99999999999879599969999999999992",
];
