// `long` is what counts and offsets are kept in: 64 bits, as on all other systems. On Windows it has
// 32, so build.py puts this before each source there: whatever of the standard library any of them
// needs, and then `long` as it is everywhere else.
#pragma once

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#define long int64_t
