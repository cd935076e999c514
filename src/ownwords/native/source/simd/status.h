// Errors inside the library, which become a Status at its interface.
#pragma once

#include <new>
#include <stdexcept>
#include <type_traits>

#include "api.h"
#include "simd/vec.h"

namespace ownwords {

struct Error {
    Status status;
};

// Return the Status that body() returns or throws.
template <typename Body>
int with_status(const Body &body) {
    try {
        return body();
    } catch (const Error &error) {
        return error.status;
    } catch (const std::bad_alloc &) {
        return STATUS_NO_MEMORY;
    } catch (const std::length_error &) {
        return STATUS_NO_MEMORY;
    } catch (...) {
        return STATUS_INTERNAL_ERROR;
    }
}

// Call body(T{}) with the type that `dtype` names: 0 float, 1 bfloat16.
template <typename Body>
void dispatch_dtype(int64_t dtype, const Body &body) {
    if (dtype == 0)
        body(float{});
    else
        body(Bf16{});
}

// The same, returning a Status.
template <typename Body>
int run_kernel(int64_t dtype, const Body &body) {
    return with_status([&] {
        dispatch_dtype(dtype, body);
        return STATUS_OK;
    });
}

}  // namespace ownwords
