// What AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer say about kernels with one bug each, and that
// they say nothing about their right twins. Part of sanitized builds only: the bugs stand in planted_bugs.cpp.
#include <doctest/doctest.h>

#include "tests/support/process.h"
#include "tests/support/sanitized.h"

using namespace tokenmill;

namespace {

test::ProcessResult run(const std::string& arguments) {
  return test::run_process("UBSAN_OPTIONS=halt_on_error=1 " TM_PLANTED_BUGS " " + arguments);
}

void check_clean(const std::string& arguments) {
  CAPTURE(arguments);
  const auto result = run(arguments);
  CHECK_EQ(result.output, "ran\n");
  CHECK_EQ(result.exit_code, 0);
}

void check_found(const std::string& arguments, const std::string& text) {
  CAPTURE(arguments);
  const auto result = run(arguments);
  CHECK_NE(result.exit_code, 0);
  CAPTURE(result.output);
  CHECK_GT(result.count(text), 0);
  CHECK_GT(result.count("planted_bugs.cpp:"), 0);
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
TEST_CASE("accesses inside arrays are clean") {
  for (const char* name : {"global_inside", "static_shared_inside", "dynamic_shared_inside", "float4_aligned",
                           "async_copy_inside", "matrix_inside"}) {
    check_clean(name);
  }
}

TEST_CASE("accesses past the end of global and shared arrays are reported at the kernel's line") {
  check_found("global_past_the_end", "heap-buffer-overflow");
  check_found("static_shared_past_the_end", "index 128 out of bounds");  // of an array type: UBSan is first
  check_found("dynamic_shared_past_the_end", "use-after-poison");
  check_found("async_copy_past_the_end", "cp.async: the global address is out of bounds");
  check_found("matrix_past_the_end", "ldmatrix: 16 bytes are not inside one shared array");
}

TEST_CASE("a misaligned float4 is reported at the kernel's line") {
  check_found("float4_misaligned", "misaligned address");
}
#endif

#ifdef __SANITIZE_THREAD__
TEST_CASE("kernels with their barriers have no race") {
  for (const char* name : {"neighbours", "neighbour_lanes", "shuffle_is_no_barrier", "async_copy_for_others",
                           "bulk_load_over_readers", "multiply_tile"}) {
    check_clean(std::string(name) + " right");
  }
}

TEST_CASE("a missing barrier is a race between two lines of the kernel") {
  for (const char* name :
       {"neighbours", "neighbour_lanes", "shuffle_is_no_barrier", "async_copy_for_others", "multiply_tile"}) {
    check_found(std::string(name) + " no_barrier", "data race");
  }
  for (const char* name : {"neighbours", "bulk_load_over_readers"}) {
    check_found(std::string(name) + " no_barrier_before_reuse", "data race");
  }
}
#endif
