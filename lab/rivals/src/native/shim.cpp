// The native pools behind three C functions each: create(workers, function), submit(pool,
// argument), destroy(pool). submit may be called from any thread; each submitted argument is given
// to the function once; destroy follows the last run.

#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <glib.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <uv.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using Function = void (*)(void *);

// oneTBB: an arena without a slot for its creator. By default the library starts one thread fewer
// than there are CPUs, as it expects the caller to take part; the control raises that to what the
// arena asks for.
namespace {
struct Tbb {
    tbb::global_control threads;
    tbb::task_arena arena;
    Function function;
    Tbb(int workers, Function f)
        : threads(tbb::global_control::max_allowed_parallelism, workers + 1), arena(workers, 0), function(f) {
        arena.initialize();
    }
};
}  // namespace

extern "C" void *uwork_tbb_create(int workers, Function function) { return new Tbb(workers, function); }

extern "C" void uwork_tbb_submit(void *pool, void *argument) {
    auto *tbb = static_cast<Tbb *>(pool);
    tbb->arena.enqueue([function = tbb->function, argument] { function(argument); });
}

extern "C" void uwork_tbb_destroy(void *pool) { delete static_cast<Tbb *>(pool); }

// Asio's pool, which is Boost.Asio's too. `post` may be called from any thread; `join` waits for what
// was posted.
namespace {
struct Asio {
    asio::thread_pool pool;
    Function function;
    Asio(int workers, Function f) : pool(workers), function(f) {}
};
}  // namespace

extern "C" void *uwork_asio_create(int workers, Function function) { return new Asio(workers, function); }

extern "C" void uwork_asio_submit(void *handle, void *argument) {
    auto *pool = static_cast<Asio *>(handle);
    asio::post(pool->pool, [function = pool->function, argument] { function(argument); });
}

extern "C" void uwork_asio_destroy(void *handle) {
    auto *pool = static_cast<Asio *>(handle);
    pool->pool.join();
    delete pool;
}

// GLib: an exclusive pool, so that its threads are its own.
static void glib_run(gpointer argument, gpointer function) { reinterpret_cast<Function>(function)(argument); }

extern "C" void *uwork_glib_create(int workers, Function function) {
    return g_thread_pool_new(glib_run, reinterpret_cast<gpointer>(function), workers, TRUE, nullptr);
}

extern "C" void uwork_glib_submit(void *pool, void *argument) {
    g_thread_pool_push(static_cast<GThreadPool *>(pool), argument, nullptr);
}

extern "C" void uwork_glib_destroy(void *pool) { g_thread_pool_free(static_cast<GThreadPool *>(pool), FALSE, TRUE); }

// libuv: uv_queue_work may be called only on the loop's thread. So users of libuv do the same as this code:
// put the argument on a list under a mutex, and uv_async_send to the loop, which submits the list's
// content. The hop is part of what it costs to give libuv work from another thread; a loop that
// submits its own work does not pay it.
namespace {
struct Uv {
    uv_loop_t loop;
    uv_async_t async;
    uv_mutex_t lock;
    std::vector<void *> inbox;  // under lock
    bool stopping = false;      // under lock
    Function function;
    std::thread thread;
};

struct UvWork {
    uv_work_t request;
    Function function;
    void *argument;
};

void uv_run_one(uv_work_t *request) {
    auto *work = static_cast<UvWork *>(request->data);
    work->function(work->argument);
}

void uv_after(uv_work_t *request, int) { delete static_cast<UvWork *>(request->data); }

void uv_collect(uv_async_t *async) {
    auto *pool = static_cast<Uv *>(async->data);
    std::vector<void *> batch;
    uv_mutex_lock(&pool->lock);
    batch.swap(pool->inbox);
    bool stopping = pool->stopping;
    uv_mutex_unlock(&pool->lock);
    for (void *argument : batch) {
        auto *work = new UvWork{{}, pool->function, argument};
        work->request.data = work;
        uv_queue_work(&pool->loop, &work->request, uv_run_one, uv_after);
    }
    if (stopping) uv_close(reinterpret_cast<uv_handle_t *>(async), nullptr);
}

// Before main, while there is one thread: the size of libuv's process-wide pool. The environment
// wins.
__attribute__((constructor)) void uv_size() {
    setenv("UV_THREADPOOL_SIZE", std::to_string(std::thread::hardware_concurrency()).c_str(), 0);
}
}  // namespace

extern "C" void *uwork_uv_create(int, Function function) {
    auto *pool = new Uv;
    pool->function = function;
    if (uv_loop_init(&pool->loop) != 0 || uv_mutex_init(&pool->lock) != 0 ||
        uv_async_init(&pool->loop, &pool->async, uv_collect) != 0) {
        delete pool;
        return nullptr;
    }
    pool->async.data = pool;
    pool->thread = std::thread([pool] { uv_run(&pool->loop, UV_RUN_DEFAULT); });
    return pool;
}

extern "C" void uwork_uv_submit(void *handle, void *argument) {
    auto *pool = static_cast<Uv *>(handle);
    uv_mutex_lock(&pool->lock);
    bool first = pool->inbox.empty();
    pool->inbox.push_back(argument);
    uv_mutex_unlock(&pool->lock);
    if (first) uv_async_send(&pool->async);
}

extern "C" void uwork_uv_destroy(void *handle) {
    auto *pool = static_cast<Uv *>(handle);
    uv_mutex_lock(&pool->lock);
    pool->stopping = true;
    uv_mutex_unlock(&pool->lock);
    uv_async_send(&pool->async);
    pool->thread.join();
    uv_loop_close(&pool->loop);
    uv_mutex_destroy(&pool->lock);
    delete pool;
}
