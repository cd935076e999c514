// The copy guard's question: which ids must not come next? The index and its promises are described
// in inference/copy_guard.py and ngram_index.py. The index is a mapped file of unknown origin: every number
// in it is checked where it is used.
#include <algorithm>
#include <new>

#include "engine/guard.h"
#include "numbers.h"

namespace ownwords::engine {
namespace {

constexpr int64_t MORE = -1;  // ids of the history are needed than were given

// As in native/guard.py.
struct Table {
    const uint32_t *offsets;
    const uint16_t *marks;
    const void *values;
    int64_t bits, entries, wide;
};

struct Index {
    Table tokens, words;
    const uint32_t *piece_offsets;
    const uint8_t *pieces, *breaks;
    const int32_t *parents;
    const uint32_t *id_offsets, *ids;
    int64_t vocabulary, piece_bytes, nodes, id_count, longest, run_of_words;
};

constexpr uint64_t FACTOR = 0x9E3779B97F4A7C15u;

inline uint64_t mixed(uint64_t number) {
    number += FACTOR;
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
    number = (number ^ number >> 27) * 0x94D049BB133111EBu;
    return number ^ number >> 31;
}

template <typename Body>
void find(const Table &table, uint64_t key, const Body &body) {
    const uint64_t bucket = table.bits ? key >> (64 - table.bits) : 0;
    const uint16_t mark = uint16_t(key >> (48 - table.bits));
    const int64_t end = std::min<int64_t>(table.offsets[bucket + 1], table.entries);
    for (int64_t i = table.offsets[bucket]; i < end; ++i)
        if (table.marks[i] == mark)
            body(table.wide ? int64_t(static_cast<const uint32_t *>(table.values)[i])
                            : int64_t(static_cast<const uint16_t *>(table.values)[i]));
}

// Bytes as words are compared by: letters small, what lies between words 0.
struct Letters {
    uint8_t small[256];

    constexpr Letters() : small() {
        for (int i = 0; i < 256; ++i) {
            const bool capital = i >= 'A' && i <= 'Z';
            const bool other = (i >= 'a' && i <= 'z') || (i >= '0' && i <= '9') || i >= 128;
            small[i] = uint8_t(capital ? i + 32 : other ? i : 0);
        }
    }
};

constexpr Letters letters;

// How many bytes of a punctuation mark of several begin here: 0 if none does. The last may be
// missing; at the very end, where tokens may divide a character, all but the first.
inline Long marked(const uint8_t *at, const uint8_t *end) {
    if (*at != 0xC2 && *at != 0xE2 && *at != 0xE3) return 0;
    if (at + 1 == end) return 1;
    if (*at == 0xC2) return at[1] >= 0xA0 && at[1] < 0xC0 ? 2 : 0;
    if (at[1] != 0x80 && (*at == 0xE3 || at[1] != 0x81)) return 0;
    return at + 2 != end && at[2] >= 0x80 && at[2] < 0xC0 ? 3 : 2;
}

// The hashes of the last words of a text, kept in a ring.
struct Words {
    std::vector<uint64_t> ring;
    int64_t count = 0;
    bool open = false;  // the text ends within or right after the last word
    uint64_t word = 0;

    void begin(int64_t run) {
        ring.resize(size_t(run));
        count = 0;
        open = false;
    }

    void close() {
        if (open) ring[size_t(count++) % ring.size()] = mixed(word);
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
            const uint8_t small = letters.small[*at];
            const Long mark = small == 0 ? 1 : small < 0xC2 || small > 0xE3 ? 0 : marked(at, end);
            if (mark == 0)
                letter(small);
            else
                close();
            at += mark == 0 ? 1 : mark;
        }
    }

    int64_t all() const { return count + open; }

    // The hash of the last so many words, as many as the ring holds.
    uint64_t key() {
        const bool within = open;
        const uint64_t last = word;
        close();
        uint64_t made = 0;
        for (size_t i = 0; i < ring.size(); ++i)
            made = made * FACTOR + ring[(size_t(count) + i) % ring.size()];
        if (within) --count;
        open = within;
        word = last;
        return mixed(made);
    }
};

bool is_text(const Index &index, int32_t id) {
    return id >= 0 && id < index.vocabulary && !index.breaks[id];
}

// The words at the end of the history; false where it was not given far enough back.
bool read(const Index &index, const int32_t *history, int64_t length, bool whole,
          std::vector<uint8_t> &text, Words &words) {
    for (int64_t count = 2 * index.run_of_words;; count *= 2) {
        count = std::min(count, length);
        text.clear();
        bool all = count == length && whole;
        for (const int32_t *id = history + length - count; id != history + length; ++id) {
            if (!is_text(index, *id)) {
                text.clear();
                all = true;
                continue;
            }
            const int64_t begin = index.piece_offsets[*id];
            const int64_t end = std::min<int64_t>(index.piece_offsets[*id + 1], index.piece_bytes);
            if (begin < end) text.insert(text.end(), index.pieces + begin, index.pieces + end);
        }
        words.begin(index.run_of_words - 1);
        words.read(text);
        // One more than is looked at, as the first may be cut.
        if (all || words.all() >= index.run_of_words) return true;
        if (count == length) return false;
    }
}

void settle(std::vector<int32_t> &found) {
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
}

int64_t banned(const Index &index, const int32_t *history, int64_t length, bool whole,
               std::vector<int32_t> &found) {
    thread_local std::vector<uint8_t> text;
    thread_local Words words;
    found.clear();
    const int64_t run = index.longest - 1;
    if (length < run && !whole) return MORE;
    if (length >= run) {
        uint64_t key = 0;
        for (const int32_t *id = history + length - run; id != history + length; ++id)
            key = key * FACTOR + mixed(uint64_t(int64_t(*id)));
        find(index.tokens, mixed(key), [&](int64_t id) { found.push_back(int32_t(id)); });
    }
    if (!read(index, history, length, whole, text, words)) return MORE;
    if (words.all() >= index.run_of_words - 1)
        find(index.words, words.key(), [&](int64_t node) {
            while (node >= 0 && node < index.nodes) {
                // After a letter only what has a gap begins a word.
                const int64_t begin = index.id_offsets[2 * node];
                const int64_t end = index.id_offsets[2 * node + (words.open ? 1 : 2)];
                for (int64_t i = begin; i < std::min(end, index.id_count); ++i)
                    found.push_back(int32_t(index.ids[i]));
                node = std::min<int64_t>(index.parents[node], node - 1);
                if (int64_t(found.size()) > 2 * index.vocabulary + 4096) settle(found);
            }
        });
    settle(found);
    return int64_t(found.size());
}

}  // namespace

void forbidden(const void *index, const int32_t *history, int64_t length,
               std::vector<int32_t> &ids) {
    banned(*static_cast<const Index *>(index), history, length, true, ids);
}

}  // namespace ownwords::engine

// How many ids there are, of which the first `room` are written; -1 if more than the last `length`
// ids of the history are needed and it is not `whole`, -2 where memory is short.
OWNWORDS_API int64_t ownwords_guard(const void *index, const int32_t *history, int64_t length,
                                    int whole, int32_t *ids, int64_t room) {
    using namespace ownwords::engine;
    thread_local std::vector<int32_t> found;
    try {
        const int64_t count =
            banned(*static_cast<const Index *>(index), history, length, whole != 0, found);
        if (count > 0) std::copy_n(found.begin(), std::min(count, room), ids);
        return count;
    } catch (const std::bad_alloc &) {
        return -2;
    }
}
