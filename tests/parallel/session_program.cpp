// A program that ends in the way its first argument says; session_test.cpp runs it under mpiexec and alone.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "parallel/mpi.h"

using namespace tokenmill;
using namespace tokenmill::parallel;

namespace {

int run(const std::string& how, MpiSession& session) {
  const Comm& world = session.world();
  const bool last = world.rank() == world.size() - 1;
  if (how == "agreed")
    agree_on(world, [&] {
      if (last) throw Error(ErrorKind::kIo, "weights cannot be read");
    });
  if (how == "alone" && last) throw Error(ErrorKind::kDevice, "device lost");
  if (how == "foreign" && last) throw std::runtime_error("not one of ours");
  if (how == "thread" && last) std::thread([] { throw Error(ErrorKind::kIo, "in a helper thread"); }).join();
  if (how == "unwinds" && last) throw 42;         // guard() catches std::exception only
  if (how != "fine") agree(world, std::nullopt);  // the others wait here, as they would in any collective
  return how == "fine" ? 75 : 0;
}

}  // namespace

int main(int, char** argv) {
  if (const auto problem = check_launcher()) {
    if (problem->prints) std::fprintf(stderr, "error[mpi] %s\n", problem->text.c_str());
    return 2;
  }
  MpiSession session(
      {.exit_code = [](ErrorKind kind) { return kind == ErrorKind::kInternal ? 1 : 4; },
       .print = [](const Error& e) { std::fprintf(stderr, "error[%s] %s\n", to_string(e.kind()), e.what()); }});
  return session.guard([&] { return run(argv[1], session); });
}
