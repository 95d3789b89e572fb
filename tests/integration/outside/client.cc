// SPDX-License-Identifier: Apache-2.0

// A program of somebody else: built against what is installed, strict C++11.
//   client       follows launches until 100 have come, then prints each kernel's count
#include <gpuobs.h>
#include <poll.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace
{

struct seen {
        std::map<std::string, std::uint64_t> kernels;
        std::uint64_t launches;
        int error;
};

void on_launches(void *data, int error, const gpuobs_launch_batch *batch)
{
        seen *s = static_cast<seen *>(data);

        if (error) {
                s->error = error;
                return;
        }
        for (std::size_t i = 0; i < batch->n_launches; i++) {
                const gpuobs_launch &l = batch->launches[i];

                s->launches++;
                s->kernels[l.kernel ? l.kernel : "?"]++;
        }
}

struct deleter {
        void operator()(gpuobs *g) const { gpuobs_free(g); }
};

} // namespace

int main()
{
        gpuobs *raw = nullptr;
        seen s{{}, 0, 0};
        int r = gpuobs_connect(nullptr, 0, &raw);

        if (r < 0) {
                std::fprintf(stderr, "connect: %s\n", std::strerror(-r));
                return 1;
        }
        std::unique_ptr<gpuobs, deleter> g(raw);
        r = gpuobs_launches_subscribe(g.get(), nullptr, on_launches, &s, nullptr);
        std::puts("following");
        std::fflush(stdout);
        while (r >= 0 && !s.error && s.launches < 100) {
                pollfd p = {gpuobs_fd(g.get()), gpuobs_events(g.get()), 0};

                poll(&p, 1, gpuobs_timeout_ms(g.get()) == 0 ? 0 : 200);
                r = gpuobs_dispatch(g.get());
        }
        if (r < 0 || s.error) {
                std::fprintf(stderr, "%s\n", gpuobs_error(g.get())->message);
                return 1;
        }
        for (const auto &k : s.kernels)
                std::printf("%s %llu\n", k.first.c_str(), static_cast<unsigned long long>(k.second));
        return 0;
}
