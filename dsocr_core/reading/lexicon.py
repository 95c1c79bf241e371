"""Words that make a value, and words that decide what a sentence says, in the languages that pages are in.

Lists are of closed classes: units, currencies, months, days, negations, numbers. A word that is missing is
compared as any other word.
"""

from __future__ import annotations

import re

from rapidfuzz.distance import Levenshtein


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CURRENCIES = _words("""
    EUR USD GBP CHF JPY CNY RMB INR RUB KRW TRY CAD AUD NZD SEK NOK DKK PLN CZK HUF RON BRL MXN ZAR SGD HKD
    THB IDR ILS AED SAR UAH euro euros dollar dollars yen pounds Euro Dollar
    kr Kr Fr SFr zł Kč Ft lei руб. руб грн ريال ریال درهم دينار
""")
_UNITS = _words("""
    % ‰ ° °C °F K g t lb lbs oz m mi ft in yd l L m2 m3 m^2 m^3 cm^2 cm^3 km^2 mm^2 ha s min h hr hrs d
    Hz V A W J kcal cal Pa bar psi B KB KiB MiB GiB bit bits px pt dpi pp bp bps ppm ppb mol dB Ω rpm
    mph Nm N am pm AM PM a.m p.m Uhr Std Stk St pcs pc k M bn mn million billion trillion thousand
    hundred Mio Mrd Tsd years months weeks days hours minutes seconds year month week day hour minute
    second 年 月 日 号 時 时 分 秒 点 個 个 件 枚 人 本 万 億 亿 千 百 年度
    层 页 回 歳 岁 원 년 월 일 시 명 개 ٪ CR DR Cr Dr BC AD
    BCE CE Liter Meter Tage Tagen Jahre Jahren Monate Wochen Stunden Minuten Stück jours ans mois heures
    días años meses horas giorni anni mesi ore
""")
_SI_PREFIXES = _words("k M G T m µ μ n p c d h")
_SI_UNITS = _words("g m l L s A V W Wh J N Pa Hz Ω F B bit mol eV")
MONTHS = _words("""
    january february march april may june july august september october november december jan feb mar apr
    jun jul aug sep sept oct nov dec januar februar märz mai juni juli oktober dezember janvier février mars
    avril juin juillet août septembre octobre novembre décembre enero febrero marzo abril mayo junio julio
    agosto septiembre octubre noviembre diciembre gennaio febbraio aprile maggio giugno luglio settembre
    ottobre dicembre januari februari maart mei augustus fevereiro março maio junho julho setembro outubro
    dezembro ianuarie februarie martie aprilie iunie iulie septembrie octombrie noiembrie decembrie
    stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
    ledna února března dubna května června července srpna září října listopadu prosince
    január február március április május június július augusztus szeptember október
    ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık
    tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta syyskuuta
    lokakuuta marraskuuta joulukuuta juuni juuli ιανουαρίου φεβρουαρίου μαρτίου απριλίου μαΐου ιουνίου
    ιουλίου αυγούστου σεπτεμβρίου οκτωβρίου νοεμβρίου δεκεμβρίου
    يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر
    січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня
    января февраля марта апреля мая июня июля августа сентября октября ноября декабря
""")
_DAYS_AND_MODALS = _words("""
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays
    saturdays sundays montag dienstag mittwoch donnerstag freitag samstag sonntag lundi mardi mercredi jeudi
    vendredi samedi dimanche lunes martes miércoles jueves viernes sábado domingo lunedì martedì mercoledì
    giovedì venerdì sabato domenica понедельник вторник среда четверг пятница суббота воскресенье today
    tomorrow yesterday daily weekly monthly yearly noon midnight midi minuit täglich wöchentlich monatlich
    jährlich spring summer autumn winter frühling sommer herbst printemps automne hiver primavera verano
    otoño invierno
    must may might can could shall should will would muss müssen darf dürfen kann können soll sollen doit
    doivent peut peuvent debe deben puede pueden deve devono può possono pode podem moet mag kan
""")
_NEGATIONS = _words("""
    no not never none nor neither nothing nobody without cannot nicht kein keine keinen keiner keinem keines
    keinesfalls keineswegs niemand nichts ohne nie niemals niet geen nooit zonder ne pas sans jamais aucun
    aucune rien sin nunca ningún ninguna ninguno nada tampoco non senza mai nessun nessuno nessuna né não
    nem sem nenhum nenhuma ikke ingen inte inga inget ej aldrig utan nie brak bez żaden nelze není nejsou не
    нет без ни нельзя никогда ні немає değil yok hayır nem nincs sem ei eivät tidak bukan jangan tanpa không
    chưa لا ليس ليست لم لن بدون غير نیست prohibited forbidden verboten untersagt interdit interdite
    prohibido prohibida vietato proibido verboden запрещено запрещается לא אין ללא בלי नहीं मत बिना না নয়
    δεν δε μην μη όχι χωρίς κανένας καμία κανένα emme ette eivätkä ilman değildir değiller nu fără
    except hardly barely kaum außer sauf excepto кроме niciun nicio nije nisu ні жоден không
""")
_NEGATIONS_WITHIN = _words("""
    不 没 沒 無 无 非 未 否 勿 禁 ない なし ませ ぬ 않 못 없 아니 불 금지 ไม่ ห้าม 或 又は 또는 หรือ
""")
"""In scripts that set no blanks between words; with *or*, which is no *and*."""
_CONTRACTED = re.compile(r"n'\w+|\w+n't")
_NUMBERS = _words("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fifteen eighteen twenty
    thirty forty fifty eighty hundred thousand million billion first second third fifth eighth ninth twelfth
    twentieth fortieth half quarter dozen double triple once twice
    null ein eins zwei zwo drei vier fünf sechs sieben acht neun zehn elf zwölf sechzehn siebzehn zwanzig
    dreißig dreissig sechzig siebzig hundert tausend erste ersten erster erstes dritte dritten dritter siebte
    halb halbe drittel viertel fünftel
    un deux trois quatre quatrième cinq sept huit neuf neuvième dix onze douze treize quatorze quinze seize
    vingt trente quarante cinquante soixante cent mille premier première seconde tiers demi
    uno dos tres cuatro cinco seis siete ocho nueve diez doce trece catorce quince dieci veinte veinti
    treinta cuarenta cincuenta sesenta setenta ochenta noventa cien ciento mil primero primera
    segundo segunda tercer tercero tercera cuarto cuarta quinto quinta mitad
    due tre quattro cinque sei sette otto nove undici dodici tredici quattordici quindici sedici diciassette
    diciotto diciannove venti vent trenta quaranta cinquanta sessanta settanta ottanta novanta cento mila
    primo prima terzo terza metà
    dois duas três quatro oito dez treze vinte trinta quarenta cinquenta sessenta oitenta cem duzentos
    trezentos terço metade
    een twee drie vijf zes zeven negen tien twaalf dertien veertien twintig dertig veertig honderd duizend
    två fyra fem sju åtta nio tio tolv tretton fjorton femton sexton arton tjugo trettio fyrtio hundra tusen
    seks syv otte tyve hundre
    dwa dwie dwu trzy cztery pięć sześć siedem osiem dziewięć dziesięć sto tysiąc
    один два две двое три четыре пять шесть семь восемь девять десять сорок сто двести тысяча тысячи тысяч
    первый второй третий половина пятнадцать шестнадцать семнадцать восемнадцать девятнадцать
    iki üç dört beş altı yedi sekiz dokuz yirmi otuz kırk elli dua tiga empat lima enam tujuh delapan
    sembilan puluh ratus ribu bốn năm sáu bảy tám chín mười trăm
    واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة عشرون ثلاثون مئة مائة ألف
    yksi kaksi kolme neljä viisi kuusi seitsemän kahdeksan yhdeksän kymmenen sata tuhat puoli
    ένα δύο τρεις τρία τέσσερις τέσσερα πέντε έξι επτά εφτά οκτώ οχτώ εννέα δέκα είκοσι τριάντα εκατό χίλια
    kettő két három négy öt hét nyolc kilenc tíz húsz harminc száz ezer
    sedem osem štyri päť šesť deväť desať četiri devet jeden dva dvě tři čtyři pět
    šest sedm osm devět deset sto tisíc doi două trei patru cinci șase șapte opt
    nouă zece sută mie אחד שניים שלושה שלוש ארבעה ארבע חמישה חמש שישה שש שבעה שבע שמונה תשעה תשע עשרה עשר
    एक दो तीन चार पांच पाँच छह सात आठ नौ दस बीस सौ हज़ार
""")
_NUMBER_ENDINGS = _words("""
    teen ty tieth th s und zig ßig te ter ten tes tem ste ster sten stes ième tig en ën
    надцать дцать надцати дцати десят naście dzieścia dziesiąt
""")


def _either(words: frozenset[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_NUMBER = re.compile(
    rf"(?!(?:un|ein|een|due|sei)$)(?:{_either(_NUMBERS)})(?:{_either(_NUMBERS | _NUMBER_ENDINGS)})*+"
)
"""Compounds too. Articles are none."""
_PREFIXES = _words("dis un in im ir il non mis de anti nicht ne nie ن in- non- anti- !")
_LONGEST = 60
"""Letters of a number in words are fewer."""
_ENDINGS = (("ee", "er"), ("ee", "or"), ("geber", "nehmer"), ("ful", "less"))
_OPPOSED = [
    set(pair.split("/"))
    for pair in _words("""
    yes/no ja/nein oui/non true/false before/after above/below more/less high/low min/max minimum/maximum
    debit/credit net/gross netto/brutto buyer/seller left/right positive/negative pass/fail passed/failed
    vor/nach über/unter mehr/weniger hoch/niedrig soll/haben käufer/verkäufer mieter/vermieter avant/après
    plus/moins acheteur/vendeur antes/después más/menos male/female open/closed include/exclude
    included/excluded including/excluding increase/decrease increased/decreased ever/never
    and/or und/oder et/ou и/или en/of och/eller og/eller i/lub ve/veya inclusive/exclusive incl/excl
    inklusive/exklusive inkl/exkl inkl/zzgl up/down on/off from/to von/nach north/south east/west
    mr/mrs herr/frau sr/sra least/most mindestens/höchstens
    upper/lower import/export buy/sell plaintiff/defendant kläger/beklagter gläubiger/schuldner
    landlord/tenant creditor/debtor accepted/rejected approved/rejected allowed/forbidden
    """)
]


def follows_a_number(chunk: str) -> bool:
    """Tell whether a word after a number is part of its value: a unit, a currency, a month."""
    if "/" in chunk or "·" in chunk:
        return all(map(is_unit, re.split("[/·]", chunk)))
    return is_unit(chunk) or chunk in CURRENCIES or chunk.lower() in MONTHS


def is_unit(chunk: str) -> bool:
    """Tell whether a chunk is a unit."""
    return chunk in _UNITS or (chunk[:1] in _SI_PREFIXES and chunk[1:] in _SI_UNITS)


def decides(a: list[str], b: list[str]) -> int:
    """Rank words that changed: 0 where one side denies the other, 1 where another number, day or modal verb
    stands, 2 for the rest."""
    a, b = ([word.lower() for word in side] for side in (a, b))
    if _denials(a) != _denials(b) or any(map(_opposite, a, b)):
        return 0
    counted = ([word.replace("-", "") for word in side if _counts(word)] for side in (a, b))
    return 1 if next(counted) != next(counted) else 2


def _denials(words: list[str]) -> int:
    alone = sum(word in _NEGATIONS or _CONTRACTED.fullmatch(word) is not None for word in words)
    return alone + sum("".join(words).count(part) for part in _NEGATIONS_WITHIN)


def _counts(word: str) -> bool:
    named = any(part in MONTHS or part in _DAYS_AND_MODALS for part in word.split("-"))
    return named or (len(word) < 50 and _is_number(word.replace("-", "")))


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


def _opposite(a: str, b: str) -> bool:
    short, long = sorted((a, b), key=len)
    if {a, b} in _OPPOSED or (bool(short) and any(long == prefix + short for prefix in _PREFIXES)):
        return True
    ends = (*_ENDINGS, *(pair[::-1] for pair in _ENDINGS))
    return any(a.endswith(x) and b.endswith(y) and a[: -len(x)] == b[: -len(y)] for x, y in ends)


def is_slip(a: str, b: str) -> bool:
    """Tell whether two words may be one misread: less than a fourth of their letters."""
    a, b = a.casefold(), b.casefold()
    return Levenshtein.distance(a, b) <= (max(len(a), len(b)) - 1) // 4
