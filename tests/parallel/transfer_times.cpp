// Prints what connect() measures of each route, then times transfers of all ranks by each, call by call in turns
// (medians of rank 0):
//   mpiexec -n 2 transfer_times [SECONDS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/connect.h"
#include "parallel/mpi.h"
#include "support/immediate_stream.h"

using namespace tokenmill;
using namespace tokenmill::parallel;

namespace {

struct Case {
  const char* name;
  int64_t bytes;  // that a rank receives
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double once_s(Communicator& group, const std::string& kind, int64_t bytes, std::vector<uint8_t>& a,
              std::vector<uint8_t>& b) {
  const int64_t size = group.size();
  const int64_t part = bytes / (size - 1);
  const auto view = [](std::vector<uint8_t>& memory, std::initializer_list<int64_t> shape) {
    return TensorView(memory.data(), DType::kU8, shape);
  };
  const auto begin = std::chrono::steady_clock::now();
  if (kind == "exchange") {
    group.wait(group.exchange(view(a, {size, part}), view(b, {size, part})));
  } else if (kind == "all_gather") {
    group.wait(group.all_gather(view(a, {size, part}), view(b, {part})));
  } else if (kind == "broadcast") {
    group.wait(group.broadcast(view(a, {bytes}), 0));
    group.wait(group.broadcast(view(a, {1}), 1));  // else the root runs ahead
  } else if (group.rank() < 2) {                   // to and fro
    const int peer = 1 - group.rank();
    if (group.rank() == 0) group.wait(group.send(view(b, {bytes}), peer));
    group.wait(group.recv(view(a, {bytes}), peer));
    if (group.rank() == 1) group.wait(group.send(view(b, {bytes}), peer));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / (kind == "send" ? 2 : 1);
}

void run(const Comm& world, double seconds) {
  test::ImmediateStream stream;
  HostProgress progress;
  const auto connect_begin = std::chrono::steady_clock::now();
  const Connection both = connect(world, stream, progress);
  const double connect_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - connect_begin).count();
  // Over several nodes there is MPI only, and its column twice.
  const bool has_shm = both.costs.routes.size() > 1;
  const Connection shm = connect(world, stream, progress, has_shm ? Route::kShm : Route::kMpi);
  const Connection mpi = connect(world, stream, progress, Route::kMpi);
  if (world.rank() == 0) {
    fmt::print("{} ranks; connected in {:.0f} ms\n", world.size(), connect_s * 1e3);
    for (const RouteCosts& route : both.costs.routes)
      for (const auto& [pattern, costs] : {std::pair{"collective", route.collective}, std::pair{"pair", route.pair}})
        fmt::print("{} {:<11}{:>5.1f} us + {:.3f} ns/B\n", route.name, pattern, costs.alpha_s * 1e6,
                   costs.beta_s_per_byte * 1e9);
    fmt::print("{:<12}{:>9}{:>12}{:>12}{:>12}{:>10}\n", "", "bytes", "shm us", "mpi us", "auto us", "mpi/shm");
  }
  for (const char* kind : {"exchange", "all_gather", "broadcast", "send"})
    for (const int64_t bytes : {64, 4 << 10, 64 << 10, 1 << 20, 8 << 20}) {
      std::vector<uint8_t> a(static_cast<size_t>(bytes) * 2), b(a.size(), 1);
      Communicator* const groups[] = {shm.communicator.get(), mpi.communicator.get(), both.communicator.get()};
      std::vector<double> times[3];
      for (int i = 0; i < 3; ++i) once_s(*groups[i], kind, bytes, a, b);
      const int repeats = gather_values(
          world, std::clamp(static_cast<int>(seconds / 60 / once_s(*groups[1], kind, bytes, a, b)), 5, 2000))[0];
      for (int repeat = 0; repeat < repeats; ++repeat)
        for (int i = 0; i < 3; ++i) times[i].push_back(once_s(*groups[i], kind, bytes, a, b));
      if (world.rank() == 0)
        fmt::print("{:<12}{:>9}{:>12.1f}{:>12.1f}{:>12.1f}{:>10.2f}\n", kind, bytes, median(times[0]) * 1e6,
                   median(times[1]) * 1e6, median(times[2]) * 1e6, median(times[1]) / median(times[0]));
    }
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(
      {.exit_code = [](ErrorKind) { return 1; },
       .print = [](const Error& e) { fmt::print(stderr, "error[{}] {}\n", to_string(e.kind()), e.what()); }});
  return session.guard([&] {
    run(session.world(), argc > 1 ? std::atof(argv[1]) : 5);
    return 0;
  });
}
