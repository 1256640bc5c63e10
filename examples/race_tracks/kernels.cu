// The kernels of kernels.rs for CUDA: the same arithmetic, operation by operation.
struct Point { float x, y; };
struct Shape { float v[8]; };
const int CONTROL = 12;
struct Controls { Point p[CONTROL]; };
#define TAU 6.2831853071795864769f
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

__device__ float random_number(unsigned seed, unsigned step, unsigned track, unsigned index) {
    unsigned x = seed * 0x9E3779B9u ^ step * 0x85EBCA6Bu;
    unsigned words[2] = {track, index};
    for (int i = 0; i < 2; i++) {
        x ^= (words[i] + 0x7F4A7C15u) * 0xC2B2AE35u;
        x ^= x >> 16; x *= 0x7FEB352Du; x ^= x >> 15; x *= 0x846CA68Bu; x ^= x >> 16;
    }
    return (float)(x >> 8) * (1.0f / 16777216.0f);
}
__device__ float sine(float x) {
    const float HALF = 1.57079632679489661923f;
    float turns = x * (1.0f / TAU);
    x = (turns - floorf(turns + 0.5f)) * TAU;
    x = x > HALF ? 2.0f * HALF - x : x;
    x = x < -HALF ? -2.0f * HALF - x : x;
    float s = x * x;
    return x * (1.0f + s * (-1.0f / 6.0f + s * (1.0f / 120.0f + s * (-1.0f / 5040.0f + s * (1.0f / 362880.0f)))));
}
__device__ float cosine(float x) { return sine(x + 1.57079632679489661923f); }
__device__ float norm2(Point v) { return sqrtf(v.x * v.x + v.y * v.y); }
__device__ float distance2(Point a, Point b) { Point d = {b.x - a.x, b.y - a.y}; return norm2(d); }
__device__ float perimeter(const Point* p, unsigned n) {
    float length = 0.0f;
    for (unsigned i = 0; i < n; i++) length += distance2(p[i], p[(i + 1) % n]);
    return length;
}
__device__ float curvature(Point a, Point b, Point c) {
    Point u = {b.x - a.x, b.y - a.y}, v = {c.x - b.x, c.y - b.y};
    float cross = u.x * v.y - u.y * v.x;
    return 2.0f * cross / fmaxf(norm2(u) * norm2(v) * distance2(a, c), 1e-9f);
}
__device__ float curvature_at(const Point* track, unsigned n, unsigned at) {
    return curvature(track[(at + n - 1) % n], track[at], track[(at + 1) % n]);
}
__device__ float tightest(const Point* track, unsigned n) {
    float most = 1e-6f;
    for (unsigned at = 0; at < n; at++) most = fmaxf(most, fabsf(curvature_at(track, n, at)));
    return 1.0f / most;
}
__device__ float catmull_rom(float a, float b, float c, float d, float t) {
    float cubic = 3.0f * (b - c) + d - a, square = 2.0f * a - 5.0f * b + 4.0f * c - d;
    return b + 0.5f * t * (c - a + t * (square + t * cubic));
}

KERNEL control(const unsigned* state, Controls* points, Shape* shape, unsigned count) {
    unsigned track = INDEX;
    if (track >= count) return;
    unsigned seed = state[0], step = state[1];
    float spacing = TAU / (float)CONTROL;
    for (unsigned i = 0; i < CONTROL; i++) {
        float a = random_number(seed, step, track, i * 4), b = random_number(seed, step, track, i * 4 + 1),
              c = random_number(seed, step, track, i * 4 + 2);
        points[track].p[i].x = spacing * ((float)i + 0.5f * (a - 0.5f));
        points[track].p[i].y = b < 0.25f ? 0.42f + 0.2f * c : 0.62f + 0.38f * c;
    }
    float pick[7];
    for (unsigned i = 0; i < 7; i++) pick[i] = random_number(seed, step, track, 1000 + i);
    float* v = shape[track].v;
    v[0] = 0.3f + 0.7f * pick[0]; v[1] = 560.0f + 240.0f * pick[1]; v[2] = 330.0f + 200.0f * pick[2];
    v[3] = 1.4f * (pick[3] - 0.5f); v[4] = 0.25f * (pick[4] - 0.5f);
    v[5] = TAU * pick[5]; v[6] = TAU * pick[6]; v[7] = 0.0f;
}

KERNEL trace(const Controls* points, const Shape* shapes, Point* out, unsigned m, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    const Point* p = points[index / m].p;
    const float* shape = shapes[index / m].v;
    float knot = (float)(index % m) / (float)m * (float)CONTROL;
    int first = min((int)knot, CONTROL - 1);
    float t = knot - (float)first;
    Point q[4];
    for (int o = 0; o < 4; o++) {
        int i = first + CONTROL + o - 1;
        q[o].x = p[i % CONTROL].x + ((float)(i / CONTROL) - 1.0f) * TAU;
        q[o].y = p[i % CONTROL].y;
    }
    float angle = catmull_rom(q[0].x, q[1].x, q[2].x, q[3].x, t);
    float round = fmaxf(catmull_rom(q[0].y, q[1].y, q[2].y, q[3].y, t), 0.2f);
    float s = sine(angle), c = cosine(angle);
    Point from = {q[1].y * cosine(q[1].x), q[1].y * sine(q[1].x)};
    Point to = {q[2].y * cosine(q[2].x), q[2].y * sine(q[2].x)};
    float straight = (from.x * to.y - from.y * to.x) / (c * (to.y - from.y) - s * (to.x - from.x));
    float radius = straight + shape[0] * (round - straight);
    float ss = sine(shape[3] * radius), sc = cosine(shape[3] * radius);
    float x = radius * (c * sc - s * ss), y = radius * (s * sc + c * ss);
    x = x + shape[4] * sine(3.0f * y + shape[5]);
    y = y + shape[4] * sine(3.0f * x + shape[6]);
    out[index].x = shape[1] * x;
    out[index].y = shape[2] * y;
}

KERNEL resample(const Point* from, Point* to, unsigned m, unsigned n, unsigned count) {
    unsigned track = INDEX;
    if (track >= count) return;
    from += (size_t)track * m;
    to += (size_t)track * n;
    float step = perimeter(from, m) / (float)n, passed = 0.0f;
    unsigned segment = 0;
    for (unsigned i = 0; i < n; i++) {
        float target = step * (float)i;
        Point a = from[segment], b = from[(segment + 1) % m];
        while (passed + distance2(a, b) < target && segment + 1 < m) {
            passed += distance2(a, b);
            segment += 1;
            a = from[segment]; b = from[(segment + 1) % m];
        }
        float t = fminf((target - passed) / fmaxf(distance2(a, b), 1e-12f), 1.0f);
        to[i].x = a.x + t * (b.x - a.x);
        to[i].y = a.y + t * (b.y - a.y);
    }
}

KERNEL smooth(const Point* points, Point* out, float by, unsigned n, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    const Point* track = points + index / n * n;
    unsigned at = index % n;
    Point a = track[(at + n - 1) % n], b = track[at], c = track[(at + 1) % n];
    out[index].x = b.x + by * (0.5f * (a.x + c.x) - b.x);
    out[index].y = b.y + by * (0.5f * (a.y + c.y) - b.y);
}

KERNEL measure(const Point* points, unsigned* done, unsigned* iterations, unsigned* remaining,
               float radius, unsigned n, unsigned count) {
    unsigned track = INDEX;
    if (track >= count || done[track]) return;
    if (tightest(points + (size_t)track * n, n) >= radius) {
        done[track] = 1;
    } else {
        iterations[track] += 1;
        atomicAdd(remaining, 1u);
    }
}

KERNEL stop(const unsigned* remaining, unsigned* flag) {
    if (INDEX == 0) flag[0] = remaining[0] == 0 ? 1 : 0;
}

KERNEL relax(const Point* points, const unsigned* done, Point* out, float radius, unsigned n, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    if (done[index / n]) { out[index] = points[index]; return; }
    const unsigned REACH = 4;
    const Point* track = points + index / n * n;
    unsigned at = index % n;
    float most = 0.0f;
    for (unsigned o = 0; o <= 2 * REACH; o++)
        most = fmaxf(most, fabsf(curvature_at(track, n, (at + n + o - REACH) % n)));
    float excess = fminf(fmaxf(4.0f * most * radius - 3.0f, 0.0f), 1.0f);
    Point a = track[(at + n - 1) % n], b = track[at], c = track[(at + 1) % n];
    out[index].x = b.x + 0.7f * excess * (0.5f * (a.x + c.x) - b.x);
    out[index].y = b.y + 0.7f * excess * (0.5f * (a.y + c.y) - b.y);
}

KERNEL borders(const Point* points, Point* left, Point* right, float* bend, float half_width, unsigned n, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    const Point* track = points + index / n * n;
    unsigned at = index % n;
    Point a = track[(at + n - 1) % n], b = track[at], c = track[(at + 1) % n];
    Point along = {c.x - a.x, c.y - a.y};
    float scale = half_width / fmaxf(norm2(along), 1e-6f);
    left[index].x = b.x - along.y * scale;
    left[index].y = b.y + along.x * scale;
    right[index].x = b.x + along.y * scale;
    right[index].y = b.y - along.x * scale;
    bend[index] = curvature(a, b, c);
}

KERNEL length(const Point* points, Point* out, unsigned n, unsigned count) {
    unsigned track = INDEX;
    if (track >= count) return;
    out[track].x = perimeter(points + (size_t)track * n, n);
    out[track].y = tightest(points + (size_t)track * n, n);
}

KERNEL advance(unsigned* state) {
    if (INDEX == 0) state[1] += 1;
}
