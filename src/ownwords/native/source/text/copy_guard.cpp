// Which ids would continue a run of the training text. The index and its guarantees are described
// in inference/copy_guard.py and ngram_index.py.
#include <algorithm>
#include <new>

#include "text/copy_guard.h"
#include "simd/types.h"

namespace ownwords::text {
namespace {

constexpr uint64_t FACTOR = 0x9E3779B97F4A7C15u;

inline uint64_t mix(uint64_t number) {
    number += FACTOR;
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
    number = (number ^ number >> 27) * 0x94D049BB133111EBu;
    return number ^ number >> 31;
}

template <typename Body>
void find(const HashTable &table, uint64_t key, const Body &body) {
    const uint64_t bucket = table.bits ? key >> (64 - table.bits) : 0;
    const uint16_t mark = uint16_t(key >> (48 - table.bits));
    const int64_t end = std::min<int64_t>(table.offsets[bucket + 1], table.entries);
    for (int64_t i = table.offsets[bucket]; i < end; ++i)
        if (table.marks[i] == mark)
            body(table.is_wide ? int64_t(static_cast<const uint32_t *>(table.values)[i])
                               : int64_t(static_cast<const uint16_t *>(table.values)[i]));
}

// Bytes of words in lower case; 0 for bytes between words.
struct ByteClasses {
    uint8_t lower[256];

    constexpr ByteClasses() : lower() {
        for (int i = 0; i < 256; ++i) {
            const bool capital = i >= 'A' && i <= 'Z';
            const bool other = (i >= 'a' && i <= 'z') || (i >= '0' && i <= '9') || i >= 128;
            lower[i] = uint8_t(capital ? i + 32 : other ? i : 0);
        }
    }
};

constexpr ByteClasses byte_classes;

// The length of a multi-byte punctuation mark that begins here, or 0. Its last byte may be missing;
// at the very end, where a token may split a character, all but the first.
inline i64 punctuation_length(const uint8_t *at, const uint8_t *end) {
    if (*at != 0xC2 && *at != 0xE2 && *at != 0xE3) return 0;
    if (at + 1 == end) return 1;
    if (*at == 0xC2) return at[1] >= 0xA0 && at[1] < 0xC0 ? 2 : 0;
    if (at[1] != 0x80 && (*at == 0xE3 || at[1] != 0x81)) return 0;
    return at + 2 != end && at[2] >= 0x80 && at[2] < 0xC0 ? 3 : 2;
}

// The hashes of a text's last words, in a ring.
struct WordHashes {
    std::vector<uint64_t> ring;
    int64_t count = 0;
    bool open = false;  // the text ends within or right after a word
    uint64_t word = 0;

    void begin(int64_t run) {
        ring.resize(size_t(run));
        count = 0;
        open = false;
    }

    void close() {
        if (open) ring[size_t(count++) % ring.size()] = mix(word);
        open = false;
    }

    void letter(uint8_t byte) {
        if (!open) word = 0xCBF29CE484222325u;
        open = true;
        word = (word ^ byte) * 0x100000001B3u;
    }

    void read(const std::vector<uint8_t> &text) {
        const uint8_t *at = text.data(), *end = at + text.size();
        while (at != end) {
            const uint8_t lower = byte_classes.lower[*at];
            i64 gap = lower == 0 ? 1 : 0;
            if (lower >= 0xC2 && lower <= 0xE3) gap = punctuation_length(at, end);
            if (gap == 0)
                letter(lower);
            else
                close();
            at += gap == 0 ? 1 : gap;
        }
    }

    int64_t total() const { return count + open; }

    // The hash of the last words, as many as the ring holds.
    uint64_t key() {
        const bool within = open;
        const uint64_t last = word;
        close();
        uint64_t result = 0;
        for (size_t i = 0; i < ring.size(); ++i)
            result = result * FACTOR + ring[(size_t(count) + i) % ring.size()];
        if (within) --count;
        open = within;
        word = last;
        return mix(result);
    }
};

bool is_text(const NgramIndex &index, int32_t id) {
    return id >= 0 && id < index.vocabulary && !index.breaks[id];
}

// Read the last words of the history. False if they begin before it.
bool read(const NgramIndex &index, const int32_t *history, int64_t length, bool is_all,
          std::vector<uint8_t> &text, WordHashes &words) {
    for (int64_t count = 2 * index.max_words;; count *= 2) {
        count = std::min(count, length);
        text.clear();
        bool is_complete = count == length && is_all;
        for (const int32_t *id = history + length - count; id != history + length; ++id) {
            if (!is_text(index, *id)) {
                text.clear();
                is_complete = true;
                continue;
            }
            const int64_t begin = index.piece_offsets[*id];
            const int64_t end = std::min<int64_t>(index.piece_offsets[*id + 1], index.piece_bytes);
            if (begin < end) text.insert(text.end(), index.pieces + begin, index.pieces + end);
        }
        words.begin(index.max_words - 1);
        words.read(text);
        // One more than needed, as the first may be cut off.
        if (is_complete || words.total() >= index.max_words) return true;
        if (count == length) return false;
    }
}

void sort_unique(std::vector<int32_t> &banned) {
    std::sort(banned.begin(), banned.end());
    banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
}

int64_t find_banned(const NgramIndex &index, const int32_t *history, int64_t length, bool is_all,
                    std::vector<int32_t> &banned) {
    thread_local std::vector<uint8_t> text;
    thread_local WordHashes words;
    banned.clear();
    const int64_t run = index.max_tokens - 1;
    if (length < run && !is_all) return GUARD_NEEDS_HISTORY;
    if (length >= run) {
        uint64_t key = 0;
        for (const int32_t *id = history + length - run; id != history + length; ++id)
            key = key * FACTOR + mix(uint64_t(int64_t(*id)));
        find(index.tokens, mix(key), [&](int64_t id) { banned.push_back(int32_t(id)); });
    }
    if (!read(index, history, length, is_all, text, words)) return GUARD_NEEDS_HISTORY;
    if (words.total() >= index.max_words - 1)
        find(index.words, words.key(), [&](int64_t node) {
            while (node >= 0 && node < index.nodes) {
                // After a letter only tokens that begin with a gap begin a word.
                const int64_t begin = index.id_offsets[2 * node];
                const int64_t end = index.id_offsets[2 * node + (words.open ? 1 : 2)];
                for (int64_t i = begin; i < std::min(end, index.id_count); ++i)
                    banned.push_back(int32_t(index.ids[i]));
                node = std::min<int64_t>(index.parents[node], node - 1);
                if (int64_t(banned.size()) > 2 * index.vocabulary + 4096) sort_unique(banned);
            }
        });
    sort_unique(banned);
    return int64_t(banned.size());
}

}  // namespace

void banned_ids(const NgramIndex &index, const int32_t *history, int64_t length,
                std::vector<int32_t> &ids) {
    find_banned(index, history, length, true, ids);
}

}  // namespace ownwords::text

int64_t ownwords_banned_ids(const NgramIndex *index, const int32_t *history, int64_t length,
                            int is_complete, int32_t *ids, int64_t capacity) {
    thread_local std::vector<int32_t> banned;
    try {
        const int64_t count =
            ownwords::text::find_banned(*index, history, length, is_complete != 0, banned);
        if (count > 0) std::copy_n(banned.begin(), std::min(count, capacity), ids);
        return count;
    } catch (const std::bad_alloc &) {
        return GUARD_NO_MEMORY;
    }
}
