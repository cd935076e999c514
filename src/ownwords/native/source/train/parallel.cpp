#include "train/parallel.h"

#include "simd/status.h"

namespace ownwords {

std::unique_ptr<engine::ThreadPool> training_pool;

}  // namespace ownwords

int ownwords_set_threads(int64_t threads) {
    using namespace ownwords;
    if (threads < 1 || threads > 1024) return STATUS_BAD_COUNT;
    return with_status([&] {
        training_pool = std::make_unique<engine::ThreadPool>(int(threads));
        return STATUS_OK;
    });
}
